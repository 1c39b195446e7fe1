"""Expandable segments: one address range per stream and pool, backed by memory page by page.

Note [Expandable Segments] in c10/cuda/CUDACachingAllocator.cpp: the small pool maps 2 MiB at a time, the
large pool one large segment (20 MiB by default). Free pages in the middle can be unmapped and used elsewhere.
"""

from __future__ import annotations

from memlens.allocator import rules
from memlens.allocator.blocks import FREE, UNMAPPED, Block, Pool, Segment
from memlens.allocator.state import AllocatorState

UNLIMITED_BYTES = 1 << 40  # the address range where the device has no known size


def grow(allocator: AllocatorState, pool: Pool, size: int) -> Block | None:
    """A free block of at least `size` bytes that is in no pool, mapping what is missing of it.

    None if the device is full; what was mapped until then stays, free (try_allocate_expandable_block).
    """
    block = _find(allocator, pool, size)
    if block.state is UNMAPPED:
        mapped = _map(allocator, block, min(block.size, size))
        if mapped is None:
            return None
        block = mapped
    while block.size < size:
        following = block.next
        assert following is not None  # _find counted it
        mapped = _map(allocator, following, min(size - block.size, following.size))
        if mapped is None:
            return None
        block = mapped
    pool.remove(block)
    return block


def unmap(allocator: AllocatorState, block: Block) -> None:
    """Give the whole pages inside the free `block` back to the driver (unmap_block)."""
    segment, pool = block.segment, block.pool
    page = rules.page_bytes(pool.small, allocator.config)
    begin = segment.address + -(-(block.address - segment.address) // page) * page
    end = segment.address + (block.address + block.size - segment.address) // page * page
    if begin >= end:
        return
    pool.remove(block)
    if begin > block.address:
        front, block = block, block.split_off(begin - block.address, FREE)
        pool.add(front)
    if end < block.address + block.size:
        pool.add(block.split_off(end - block.address, FREE))
    block.state = UNMAPPED
    block = pool.merge(block)
    pool.add_unmapped(block)
    allocator.count_segment("unmap", begin, end - begin, pool)
    if not block.is_split:
        pool.unmapped.remove(block)
        del allocator.segments[segment.address]


def _find(allocator: AllocatorState, pool: Pool, size: int) -> Block:
    """The block at the lowest address that can grow to `size` (find_expandable_block)."""
    for candidate in pool.unmapped:
        before = candidate.prev
        start = before if before is not None and before.state is FREE else candidate
        if _has_bytes_from(start, size):
            return start
    page = rules.page_bytes(pool.small, allocator.config)
    memory = allocator.total_bytes or UNLIMITED_BYTES
    pages = -(-(memory + memory // 8) // page)  # 1 1/8 of the device, to leave room behind unmapped pages
    reach = max(pages, -(-size // page)) * page
    address = allocator.next_address(reach, pool.stream, pool.small)
    segment = allocator.segments[address] = Segment(address, reach, pool, expandable=True)
    segment.head = Block(address, reach, segment, pool, UNMAPPED)
    pool.add_unmapped(segment.head)
    return segment.head


def _has_bytes_from(start: Block, size: int) -> bool:
    """Whether the free and unmapped blocks from `start` on add up to `size`."""
    total, block = 0, start
    while total < size and block.state in (FREE, UNMAPPED):
        total += block.size
        if block.next is None:
            break
        block = block.next
    return total >= size


def _map(allocator: AllocatorState, block: Block, size: int) -> Block | None:
    """Back the first `size` bytes of an unmapped block by whole pages; the free block that results."""
    pool = block.pool
    page = rules.page_bytes(pool.small, allocator.config)
    size = -(-size // page) * page
    if not allocator.has_room(size):
        return None
    pool.unmapped.remove(block)
    if size < block.size:
        pool.add_unmapped(block.split_off(size, UNMAPPED))
    block.state = FREE
    address = block.address
    block = pool.merge(block)
    pool.add(block)
    allocator.count_segment("map", address, size, pool)
    return block
