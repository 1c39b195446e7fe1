"""An allocator in a state that a recording found it in."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from memlens.allocator import expandable, rules
from memlens.allocator.blocks import FREE, UNMAPPED, USED, Block, Pool, Segment
from memlens.allocator.simulator import CachingAllocator
from memlens.model import Alloc, SegmentAlloc


class Piece(NamedTuple):
    """A stretch of a segment that is not free: an allocation, or addresses without memory (None)."""

    start: int
    end: int
    alloc: Alloc | None


def restore(
    allocator: CachingAllocator,
    segments: Sequence[SegmentAlloc],
    allocations: Iterable[Alloc],
    later: Iterable[SegmentAlloc] = (),
) -> dict[int, Block]:
    """Put `segments` and `allocations`, which have addresses, into an empty allocator: blocks by id.

    Free neighbours are always merged, so what lies between two allocations is one free block. In the large
    pool no free block is as small as 1 MiB: so small a gap is the rest that an allocation was given whole,
    and makes its block larger than the recording shows. `later` are the segments that the recording took
    afterwards, which show how far down the address range of an expandable segment reaches.
    """
    held = sorted(segments, key=lambda segment: segment.address)
    starts = [segment.address for segment in held]
    inside: list[list[Alloc]] = [[] for _ in held]
    for alloc in sorted(allocations, key=lambda alloc: alloc.address or 0):
        index = bisect_right(starts, alloc.address or 0) - 1
        if index >= 0:
            inside[index].append(alloc)
    if allocator.config.expandable_segments:
        return _restore_expandable(allocator, held, inside, list(later))
    blocks: dict[int, Block] = {}
    for segment, allocs in zip(held, inside, strict=True):
        pool, end = allocator.pool(segment.stream, segment.small), segment.address + segment.bytes
        allocator.count_segment("alloc", segment.address, segment.bytes, pool)
        pieces = _with_rests(allocator, pool, allocs, end)
        blocks |= _tile(allocator, pool, segment.address, end, pieces)
    return blocks


def _restore_expandable(
    allocator: CachingAllocator,
    held: Sequence[SegmentAlloc],
    inside: Sequence[list[Alloc]],
    later: Iterable[SegmentAlloc],
) -> dict[int, Block]:
    """One address range per stream and pool, with the recorded ranges mapped in it."""
    ranges: defaultdict[Pool, list[tuple[SegmentAlloc, list[Alloc]]]] = defaultdict(list)
    for segment, allocs in zip(held, inside, strict=True):
        pool = allocator.pool(segment.stream, segment.small)
        allocator.count_segment("map", segment.address, segment.bytes, pool)
        ranges[pool].append((segment, allocs))
    starts = sorted(mapped[0][0].address for mapped in ranges.values())
    blocks: dict[int, Block] = {}
    for pool, mapped in ranges.items():
        first, last = mapped[0][0], mapped[-1][0]
        top = last.address + last.bytes
        beyond = next((start for start in starts if start >= top), top + expandable.UNLIMITED_BYTES)
        bottom = min(
            (taken.address for taken in later if _is_below(taken, first, held)), default=first.address
        )
        holes = [
            Piece(one.address + one.bytes, other.address, None)
            for (one, _), (other, _) in pairwise(mapped)
            if one.address + one.bytes < other.address
        ]
        holes += [
            Piece(*ends, None) for ends in ((bottom, first.address), (top, beyond)) if ends[0] < ends[1]
        ]
        pieces = [
            Piece(alloc.address or 0, (alloc.address or 0) + alloc.bytes, alloc)
            for _, allocs in mapped
            for alloc in allocs
        ]
        blocks |= _tile(allocator, pool, bottom, beyond, sorted([*pieces, *holes], key=_start), True)
    return blocks


def _is_below(taken: SegmentAlloc, first: SegmentAlloc, held: Sequence[SegmentAlloc]) -> bool:
    """Whether pages taken later are directly below a pool's lowest range, with nothing in between."""
    same = (taken.stream, taken.small) == (first.stream, first.small) and taken.address < first.address
    return same and not any(taken.address < other.address < first.address for other in held)


def _start(piece: Piece) -> int:
    return piece.start


def _with_rests(
    allocator: CachingAllocator, pool: Pool, allocs: Sequence[Alloc], segment_end: int
) -> Iterator[Piece]:
    """The allocations of a segment, each with the remainder that its block was given."""
    limit = allocator.config.max_split_bytes
    ends = [*(alloc.address or 0 for alloc in allocs[1:]), segment_end]
    for alloc, end in zip(allocs, ends, strict=False):
        start = alloc.address or 0
        gap = end - start - alloc.bytes
        # nothing is split off a block of max_split_size or more
        oversize = limit is not None and alloc.bytes >= limit
        keeps_rest = not pool.small and (oversize or gap <= rules.SMALL_BYTES)
        yield Piece(start, end if keeps_rest else start + alloc.bytes, alloc)


def _tile(
    allocator: CachingAllocator,
    pool: Pool,
    address: int,
    end: int,
    pieces: Iterable[Piece],
    grows: bool = False,
) -> dict[int, Block]:
    """Make a segment and cut it into `pieces` and the free blocks between them."""
    segment = allocator.segments[address] = Segment(address, end - address, pool, grows)
    segment.head = Block(address, end - address, segment, pool, FREE)
    placed: dict[int, Block] = {}
    block: Block | None = segment.head
    for piece in pieces:
        if block is None or piece.start < block.address:
            continue  # it overlaps the one before: the recording contradicts itself
        if piece.start > block.address:
            free, block = block, block.split_off(piece.start - block.address, FREE)
            pool.add(free)
        size = min(piece.end - piece.start, block.size)
        rest = block.split_off(size, FREE) if size < block.size else None
        if piece.alloc is None:
            block.state = UNMAPPED
            pool.add_unmapped(block)
        else:
            block.state, block.requested = USED, piece.alloc.requested or piece.alloc.bytes
            for statistics in (allocator.statistics, pool.statistics):
                statistics.malloc(block.size, block.requested)
            placed[piece.alloc.id] = block
        block = rest
    if block is not None:
        pool.add(block)
    _count_splits(allocator, segment)
    return placed


def _count_splits(allocator: CachingAllocator, segment: Segment) -> None:
    block: Block | None = segment.head
    while block is not None and not segment.expandable:
        if block.state is FREE and block.is_split:
            allocator.statistics.split(1, block.size)
            segment.pool.statistics.split(1, block.size)
        block = block.next
