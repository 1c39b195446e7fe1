"""Where everything lay at one moment."""

from __future__ import annotations

from memlens.allocator import AllocatorConfig, replay
from memlens.explanation.address_map import layout
from memlens.model import Alloc, Free, SegmentAlloc, SegmentFree, Trace
from memlens.units import MIB


def shape(trace: Trace, index: int) -> list[list[tuple[int, str]]]:
    return [[(block.bytes // MIB, block.state) for block in view.blocks] for view in layout(trace, index)]


def test_blocks_and_gaps_tile_their_segment() -> None:
    """After the first of two is freed, 4 MiB lie free before 6 that are used, and 10 behind them."""
    trace = replay(Trace("predicted", [Alloc(1, 4 * MIB), Alloc(2, 6 * MIB), Free(1)]))
    assert shape(trace, 3) == [[(4, "free"), (6, "used"), (10, "free")]]
    assert shape(trace, 2) == [[(4, "used"), (6, "used"), (10, "free")]]
    assert shape(trace, -1) == []


def test_a_segment_that_went_back_is_gone() -> None:
    """cudaFree takes the segment with it."""
    events = [SegmentAlloc(0, 2 * MIB), SegmentAlloc(8 * MIB, 4 * MIB), SegmentFree(0, 2 * MIB)]
    assert shape(Trace("imported", events), 2) == [[(4, "free")]]


def test_pages_of_an_expandable_segment_are_one() -> None:
    """30 MiB take two pages of 20, side by side: one block across both."""
    trace = replay(Trace("predicted", [Alloc(1, 30 * MIB)]), AllocatorConfig(expandable_segments=True))
    assert shape(trace, len(trace.events) - 1) == [[(30, "used"), (10, "free")]]


def test_a_block_outside_every_segment_is_left_out() -> None:
    """A recording that contradicts itself is drawn as far as it makes sense."""
    events = [SegmentAlloc(0, 2 * MIB), Alloc(1, 4 * MIB, address=MIB), Alloc(2, MIB, address=0)]
    assert shape(Trace("imported", events), 2) == [[(1, "used"), (1, "free")]]
    assert shape(Trace("predicted", [Alloc(1, MIB)]), 0) == []
