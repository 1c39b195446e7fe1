"""What the allocator gives back to the driver, and when."""

from __future__ import annotations

from bisect import bisect_left

from memlens.allocator import expandable
from memlens.allocator.blocks import KEY_SHIFT, Block, Pool
from memlens.allocator.state import AllocatorState


def release_block(allocator: AllocatorState, block: Block) -> None:
    """cudaFree of a segment that is one free block."""
    block.pool.remove(block)
    del allocator.segments[block.segment.address]
    allocator.count_segment("free", block.address, block.size, block.pool)


def release(allocator: AllocatorState, block: Block) -> int:
    """Give a free block back as far as it can go: a whole segment, or the pages inside; the bytes."""
    before = allocator.reserved_bytes
    if block.segment.expandable:
        expandable.unmap(allocator, block)
    elif not block.is_split:
        release_block(allocator, block)
    return before - allocator.reserved_bytes


def release_cached_blocks(allocator: AllocatorState) -> None:
    """Everything that can go, large pools first; pages of expandable segments are unmapped."""
    allocator.synchronize()
    for small in (False, True):
        to_unmap = []
        for pool in allocator.pools(small):
            for block in pool.free_blocks():
                if block.segment.expandable:
                    to_unmap.append(block)
                elif not block.is_split:
                    release_block(allocator, block)
        for block in to_unmap:
            expandable.unmap(allocator, block)


def release_available_cached_blocks(allocator: AllocatorState, pool: Pool, size: int) -> bool:
    """With max_split_size only: oversize blocks, just enough for the request; whether they suffice."""
    limit = allocator.config.max_split_bytes
    if limit is None:
        return False
    target = max(size, limit)
    index = bisect_left(pool.keys, target << KEY_SHIFT)
    if index < len(pool.keys) and not pool.by_key[pool.keys[index]].segment.expandable:
        release_block(allocator, pool.by_key[pool.keys[index]])
        return True
    released = 0
    for key in reversed(pool.keys[:index]):  # no single block is large enough: the largest first
        block = pool.by_key[key]
        if released >= target or block.size < limit:
            break
        if not block.segment.expandable:
            released += block.size
            release_block(allocator, block)
    return released >= target


def collect_garbage(allocator: AllocatorState) -> None:
    """Release large segments unused for longer than the average, until reserved is below the threshold."""
    assert allocator.allowed_bytes is not None
    threshold = int(allocator.config.garbage_collection_threshold * allocator.allowed_bytes)
    target = allocator.reserved_bytes - threshold
    now = allocator.searches[False]
    whole = [
        block for pool in allocator.pools(small=False) for block in pool.free_blocks() if not block.is_split
    ]
    age, count, reclaimed, freed = sum(now - block.freed_at_search for block in whole), len(whole), 0, True
    while reclaimed < target and freed and count:
        average, freed = age / count, False
        for block in list(whole):
            if not block.segment.expandable and now - block.freed_at_search >= average:
                freed = True
                reclaimed += block.size
                age -= now - block.freed_at_search
                count -= 1
                whole.remove(block)
                release_block(allocator, block)
