"""Which cards of the catalogue a scenario fits, where none was named."""

from __future__ import annotations

from memlens.allocator import AllocatorConfig
from memlens.devices import Gpu, all_gpus
from memlens.explanation.prediction import Card
from memlens.model import Alloc, Assumption, Category, Trace
from memlens.scenarios.tight_card import has_less_than, on_a_full_card
from memlens.units import format_bytes

# simulated where no card is named: it has the kernels (flash attention, bf16) of the cards in use today
REFERENCE = "A100 80GB"

SAME_KERNELS = Assumption(
    f"one card ({REFERENCE}) was simulated for all",
    "on the others the CUDA context and cuBLAS's workspace are theirs; kernels that older cards choose "
    "differently are not; name a card with --gpu",
)


def card_assumptions(gpu: Gpu) -> list[Assumption]:
    """What is assumed of the card: which one a name means, and a memory size that was not measured."""
    assumptions = []
    if gpu.note:
        assumptions.append(Assumption(f"the card is {gpu.name}", gpu.note))
    elif not gpu.verified:
        size = format_bytes(gpu.memory_bytes)
        assumptions.append(
            Assumption(f"{gpu.name} has {size}", f"no reading of this card is known: {gpu.source}")
        )
    return assumptions


def cards_for(
    trace: Trace, reference: Gpu, config: AllocatorConfig, high_process_bytes: int
) -> tuple[Card, ...]:
    """Every card, smallest memory first, with what the scenario that ran on `reference` needs there.

    The context and the cuBLAS workspaces (one a handle) are exchanged for the card's own. A card that holds
    what is allocated but not what the allocator would like to reserve is tried full.
    """
    timeline = trace.timeline()
    handles = _cublas_handles(trace, reference)
    loaded = has_cudnn(trace)
    margin = high_process_bytes - timeline.peak_reserved_bytes - reference.context.of(loaded)[2]
    cards = []
    for gpu in all_gpus():
        extra = handles * (gpu.cublas_workspace_bytes - reference.cublas_workspace_bytes)
        reserved = timeline.peak_reserved_bytes + extra
        worst = reserved + gpu.context.of(loaded)[2] + margin
        if has_less_than(gpu, reserved) and not has_less_than(gpu, timeline.peak_allocated_bytes + extra):
            squeezed = on_a_full_card(trace, gpu, config)
            reserved = squeezed.timeline().peak_reserved_bytes + extra if squeezed else reserved
        cards.append(Card(gpu.name, gpu.memory_bytes, reserved + gpu.context_bytes[1], worst))
    return tuple(sorted(cards, key=lambda card: (card.memory_bytes, card.name)))


def has_cudnn(trace: Trace) -> bool:
    """Whether the program runs what cuDNN is loaded for: convolutions, recurrent layers, its attention."""
    operators = {event.site.operator for event in trace.events if isinstance(event, Alloc)}
    return any("conv" in operator or "cudnn" in operator for operator in operators)


def _cublas_handles(trace: Trace, reference: Gpu) -> int:
    """How many threads asked for cuBLAS: its workspaces are known by their size."""
    return sum(
        isinstance(event, Alloc)
        and event.category is Category.WORKSPACE
        and event.requested == reference.cublas_workspace_bytes
        for event in trace.events
    )
