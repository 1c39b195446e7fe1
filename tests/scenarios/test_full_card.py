"""A nearly full card: cached memory goes back to the driver before anything fails."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from memlens.allocator import AllocatorConfig, replay
from memlens.devices import custom_gpu
from memlens.model import Alloc, Free, Trace
from memlens.scenarios.tight_card import has_less_than, on_a_full_card, usable_bytes
from memlens.units import MIB

pytestmark = pytest.mark.torch


def card_with_room_for(size: int):
    """A card whose allocator may take `size` bytes."""
    base = custom_gpu(8 * 1024 * MIB)
    return custom_gpu(size + base.context_bytes[1])


def growing() -> Trace:
    """30 MiB, freed, then 40 MiB: 70 MiB reserved where there is room, 40 MiB where there is not."""
    return replay(Trace("predicted", [Alloc(1, 30 * MIB), Free(1), Alloc(2, 40 * MIB)]))


def test_cached_memory_is_given_back_before_the_run_fails() -> None:
    """A card with room for 50 MiB runs what reserves 70 MiB elsewhere, and the result says at what price."""
    trace, card = growing(), card_with_room_for(50 * MIB)
    assert trace.timeline().peak_reserved_bytes == 70 * MIB
    assert has_less_than(card, 70 * MIB)
    squeezed = on_a_full_card(trace, card, AllocatorConfig())
    assert squeezed is not None
    assert squeezed.timeline().peak_reserved_bytes == 40 * MIB
    assert "1 segments" in squeezed.assumptions[-1].what
    squeezed.check()


def test_what_does_not_fit_does_not_fit() -> None:
    """A card with room for 38 MiB runs out, and nothing pretends otherwise."""
    assert on_a_full_card(growing(), card_with_room_for(38 * MIB), AllocatorConfig()) is None


def test_the_room_is_the_memory_less_the_context() -> None:
    """The allocator shares the card with the context."""
    card = card_with_room_for(100 * MIB)
    assert usable_bytes(card) == 100 * MIB
    assert not has_less_than(card, 100 * MIB)
