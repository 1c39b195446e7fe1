"""Which cards of the catalogue a scenario fits, where none was named."""

from __future__ import annotations

from memlens.devices import Gpu, all_gpus
from memlens.model import Alloc, Assumption, Category, Trace
from memlens.scenarios.prediction import Card
from memlens.units import format_bytes

# simulated where no card is named: it has the kernels (flash attention, bf16) of the cards in use today
REFERENCE = "A100 80GB"

SAME_KERNELS = Assumption(
    f"one card ({REFERENCE}) was simulated for all",
    "on the others the CUDA context and cuBLAS's workspace are theirs; kernels that older cards choose "
    "differently are not; name a card with --gpu",
)


def card_assumptions(gpu: Gpu) -> list[Assumption]:
    """What is guessed about the card itself: which one a name meant, and a memory that nobody has read."""
    found = []
    if gpu.note:
        found.append(Assumption(f"the card is {gpu.name}", gpu.note))
    elif not gpu.verified:
        size = format_bytes(gpu.memory_bytes)
        found.append(Assumption(f"{gpu.name} has {size}", f"no reading of this card is known: {gpu.source}"))
    return found


def cards_for(trace: Trace, reference: Gpu, process_bytes: int, high_process_bytes: int) -> tuple[Card, ...]:
    """Every card, smallest memory first, with what the scenario that ran on `reference` needs there.

    The context and the cuBLAS workspaces (one a handle) are exchanged for the card's own.
    """
    handles = sum(
        isinstance(event, Alloc)
        and event.category is Category.WORKSPACE
        and event.requested == reference.cublas_workspace_bytes
        for event in trace.events
    )
    _, expected, high = reference.context_bytes
    cards = []
    for gpu in all_gpus():
        extra = handles * (gpu.cublas_workspace_bytes - reference.cublas_workspace_bytes)
        needs = process_bytes + extra + gpu.context_bytes[1] - expected
        worst = high_process_bytes + extra + gpu.context_bytes[2] - high
        cards.append(Card(gpu.name, gpu.memory_bytes, needs, max(worst, needs)))
    return tuple(sorted(cards, key=lambda card: (card.memory_bytes, card.name)))
