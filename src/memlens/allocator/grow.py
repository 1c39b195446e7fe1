"""Memory from the driver: a new segment, or room made for one, or the end."""

from __future__ import annotations

from memlens.allocator import expandable, release, rules
from memlens.allocator.blocks import FREE, Block, Pool, Segment
from memlens.allocator.oom import DeviceFull
from memlens.allocator.state import AllocatorState


def grow(allocator: AllocatorState, pool: Pool, size: int, requested_bytes: int) -> Block:
    """A free block from the driver, releasing what is cached if need be (the second half of malloc).

    In PyTorch's order: collect garbage; ask; release oversize blocks and ask; release all that is whole and
    ask; give up.
    """
    wanted = rules.segment_bytes(size, allocator.config)
    if allocator.collects_garbage:
        release.collect_garbage(allocator)
    block = _add_segment(allocator, pool, size, wanted)
    if block is None and release.release_available_cached_blocks(allocator, pool, size):
        block = _add_segment(allocator, pool, size, wanted)
    if block is None:
        release.release_cached_blocks(allocator)
        allocator.retries += 1
        block = _add_segment(allocator, pool, size, wanted)
    if block is None:
        allocator.ooms += 1
        raise _build_device_full(allocator, requested_bytes, wanted)
    return block


def _add_segment(allocator: AllocatorState, pool: Pool, size: int, wanted: int) -> Block | None:
    """A segment of `wanted` bytes as one free block that is in no pool; None if there is no room."""
    if allocator.allowed_bytes is not None and allocator.reserved_bytes + wanted > allocator.allowed_bytes:
        return None
    if allocator.config.expandable_segments:
        return expandable.grow(allocator, pool, size)
    if not allocator.has_room(wanted):
        return None
    address = allocator.next_address(wanted, pool.stream, pool.small)
    segment = allocator.segments[address] = Segment(address, wanted, pool)
    segment.head = Block(address, wanted, segment, pool, FREE)
    allocator.count_segment("alloc", address, wanted, pool)
    return segment.head


def _build_device_full(allocator: AllocatorState, requested_bytes: int, wanted: int) -> DeviceFull:
    total, free = allocator.total_bytes or 0, allocator.free_bytes or 0
    return DeviceFull(
        asked_bytes=requested_bytes,
        segment_bytes=wanted,
        total_bytes=total,
        free_bytes=free,
        allocated_bytes=allocator.allocated_bytes,
        reserved_bytes=allocator.reserved_bytes,
        process_bytes=total - free,
        allowed_bytes=allocator.allowed_bytes,
        expandable_segments=allocator.config.expandable_segments,
    )
