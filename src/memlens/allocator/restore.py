"""An allocator in a state that a recording found it in."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from memlens.allocator import rules
from memlens.allocator.blocks import FREE, USED, Block, Segment
from memlens.allocator.simulator import CachingAllocator
from memlens.model import Alloc, SegmentAlloc


def restore(
    allocator: CachingAllocator, segments: Sequence[SegmentAlloc], allocations: Iterable[Alloc]
) -> dict[int, Block]:
    """Put `segments` and `allocations`, which have addresses, into an empty allocator: blocks by id.

    Free neighbours are always merged, so what lies between two allocations is one free block. In the large
    pool no free block is as small as 1 MiB: so small a gap is the rest that an allocation was given whole,
    and makes its block larger than the recording said.
    """
    starts = sorted(segment.address for segment in segments)
    inside: dict[int, list[Alloc]] = {start: [] for start in starts}
    for alloc in allocations:
        index = bisect_right(starts, alloc.address or 0) - 1
        if index >= 0:
            inside[starts[index]].append(alloc)
    blocks: dict[int, Block] = {}
    for recorded in segments:
        segment = _place(allocator, recorded)
        allocs = sorted(inside[recorded.address], key=lambda alloc: alloc.address or 0)
        blocks.update(_tile(allocator, segment, recorded, allocs))
    return blocks


def _place(allocator: CachingAllocator, recorded: SegmentAlloc) -> Segment:
    pool = allocator.pool(recorded.stream, recorded.small)
    expandable = allocator.config.expandable_segments
    segment = Segment(recorded.address, recorded.bytes, pool, expandable)
    allocator.segments[recorded.address] = segment
    allocator.count_segment("map" if expandable else "alloc", recorded.address, recorded.bytes, pool)
    return segment


def _tile(
    allocator: CachingAllocator, segment: Segment, recorded: SegmentAlloc, allocs: Sequence[Alloc]
) -> dict[int, Block]:
    """Cut the segment into its allocations and the free blocks between them."""
    pool, found = segment.pool, {}
    segment.head = Block(segment.address, recorded.bytes, segment, pool, FREE)
    block: Block | None = segment.head
    ends = [alloc.address or 0 for alloc in allocs[1:]] + [segment.address + recorded.bytes]
    for alloc, end in zip(allocs, ends, strict=False):
        start = alloc.address or 0
        if block is None or start < block.address:
            continue  # it overlaps the one before: the recording contradicts itself
        if start > block.address:
            free, block = block, block.split_off(start - block.address, FREE)
            pool.add(free)
        gap = end - start - alloc.bytes
        keeps_rest = not pool.small and not segment.expandable and gap <= rules.SMALL_BYTES
        size = end - start if keeps_rest else alloc.bytes
        rest = block.split_off(size, FREE) if size < block.size else None
        block.state, block.requested = USED, alloc.requested or alloc.bytes
        for statistics in (allocator.statistics, pool.statistics):
            statistics.malloc(block.size, block.requested)
        found[alloc.id] = block
        block = rest
    if block is not None:
        pool.add(block)
    _count_splits(allocator, segment)
    return found


def _count_splits(allocator: CachingAllocator, segment: Segment) -> None:
    block: Block | None = segment.head
    while block is not None and not segment.expandable:
        if block.state is FREE and block.is_split:
            allocator.statistics.split(1, block.size)
            segment.pool.statistics.split(1, block.size)
        block = block.next
