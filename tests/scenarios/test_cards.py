"""Which cards it fits, from a trace made by hand: the context and the workspaces of each card are its own."""

from __future__ import annotations

from memlens.allocator import AllocatorConfig, replay
from memlens.devices import all_gpus, find_gpu
from memlens.explanation.prediction import Card
from memlens.model import Alloc, Category, Event, Free, Trace
from memlens.scenarios.cards import REFERENCE, card_assumptions, cards_for
from memlens.units import GIB, MIB

A100 = find_gpu(REFERENCE)


def cards(*events: Event, margin_bytes: int = 0) -> dict[str, Card]:
    """What every card needs for these events; `margin_bytes` is what assumptions beside the context add."""
    trace = replay(Trace("predicted", list(events), A100.device()))
    reserved = trace.timeline().peak_reserved_bytes
    high = reserved + A100.context.plain_bytes[2] + margin_bytes
    return {card.name: card for card in cards_for(trace, A100, AllocatorConfig(), high)}


def alloc(number: int, size: int, category: Category = Category.PARAMETER) -> Alloc:
    return Alloc(number, size, category, requested=size)


def test_every_card_is_there_by_memory() -> None:
    """The whole catalogue, the smallest first."""
    found = list(cards(alloc(1, GIB)).values())
    assert len(found) == len(all_gpus())
    assert [card.memory_bytes for card in found] == sorted(card.memory_bytes for card in found)


def test_each_card_has_its_own_context_and_workspace() -> None:
    """On an H100 each of two handles has 32 MiB where the A100 has 8.125."""
    small = A100.cublas_workspace_bytes
    workspaces = [alloc(n, small, Category.WORKSPACE) for n in (2, 3)]
    found = cards(alloc(1, GIB), *workspaces, margin_bytes=5 * MIB)
    h100 = find_gpu("H100 PCIe")
    reserved = GIB + 20 * MIB  # both workspaces of 8.125 MiB lie in one segment
    more = 2 * (h100.cublas_workspace_bytes - small)
    assert found[A100.name].process_bytes == reserved + A100.context_bytes[1]
    assert found[h100.name].process_bytes == reserved + more + h100.context_bytes[1]
    assert found[h100.name].high_process_bytes == reserved + more + h100.context.plain_bytes[2] + 5 * MIB


def test_a_card_that_is_full_may_give_cached_blocks_back() -> None:
    """9 GiB, given back, then 10: a 12 GB card does not hold 19 GiB, and need not."""
    gpu = find_gpu("RTX 3060 12GB")
    found = cards(alloc(1, 9 * GIB), Free(1), alloc(2, 10 * GIB))
    assert found[gpu.name].process_bytes == 10 * GIB + gpu.context_bytes[1]
    assert found[gpu.name].fits
    assert found[gpu.name].high_process_bytes > gpu.memory_bytes
    both = cards(alloc(1, 9 * GIB), alloc(2, 10 * GIB))
    assert not both[gpu.name].fits


def test_what_is_guessed_about_a_card_is_said() -> None:
    """A name that means several cards, and a memory that nobody has read."""
    assert "fits NVIDIA A100" in card_assumptions(find_gpu("a100"))[0].why
    assert card_assumptions(find_gpu("4090")) == []
    (unread,) = card_assumptions(next(gpu for gpu in all_gpus() if not gpu.verified))
    assert "no reading of this card is known" in unread.why
