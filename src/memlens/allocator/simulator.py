"""The CUDA caching allocator without a GPU.

It follows c10/cuda/CUDACachingAllocator.cpp (torch 2.14.1) step by step: round the request, best fit by
(size, address) among the free blocks of its stream and size class, split, merge on free, and on a full
device collect, release and retry as PyTorch does before it gives up.

>>> allocator = CachingAllocator()
>>> block = allocator.malloc(1000)
>>> block.size, allocator.allocated_bytes, allocator.reserved_bytes
(1024, 1024, 2097152)
>>> allocator.free(block)
>>> allocator.allocated_bytes, allocator.reserved_bytes
(0, 2097152)
"""

from __future__ import annotations

from bisect import bisect_left

from memlens.allocator import grow, release, rules
from memlens.allocator.blocks import (
    FREE,
    KEY_SHIFT,
    PENDING,
    UNMAPPED,
    USED,
    Block,
    Pool,
    SegmentView,
    view,
)
from memlens.allocator.state import AllocatorState


class CachingAllocator(AllocatorState):
    """One device's allocator.

    Args:
        config: the settings, PyTorch's defaults if left out.
        capacity_bytes: what all segments together may take; None is a device that never fills.
        total_bytes: the device's memory, for the text of errors; `capacity_bytes` if left out.
        on_segment: called with (kind, address, bytes, stream, small) as segments come and go.
        addresses: gives the next segment's address, to replay a recording.
        statistics: what is counted; `PeaksOnly` counts less.

    `malloc` raises `DeviceFull` where PyTorch raises `torch.OutOfMemoryError`.
    """

    # -- the live interface ------------------------------------------------------------------------------

    def malloc(self, requested_bytes: int, stream: int = 0) -> Block:
        """The block that PyTorch would hand out; `DeviceFull` where it would raise.

        A tensor without elements allocates nothing: do not ask for 0 bytes.
        """
        if requested_bytes <= 0:
            raise ValueError(f"malloc of {requested_bytes} bytes: PyTorch allocates nothing for it")
        if self._rounds_by_512:
            size = (requested_bytes + 511) & -512
        else:
            size = rules.round_request(requested_bytes, self.config)
        small = size <= rules.SMALL_BYTES
        pool = self._pools.get((stream, small)) or self.pool(stream, small)
        index = bisect_left(pool.keys, size << KEY_SHIFT)
        if self._picky:
            index = self._choose(pool, index, size)
        block = pool.take(index) if index < len(pool.keys) else grow.grow(self, pool, size, requested_bytes)
        self._carve(pool, block, size)
        block.state = USED
        block.requested = requested_bytes
        self.statistics.malloc(block.size, requested_bytes)
        pool.statistics.malloc(block.size, requested_bytes)
        if self.limit <= block.size:
            self.oversize_allocations.increase(1)
        return block

    def free(self, block: Block) -> None:
        """Give `block` back; where `record_stream` named other streams, it waits for `synchronize`."""
        if block.state is not USED:
            raise ValueError(f"free of {block!r}, which is not allocated")
        size, requested_bytes = block.size, block.requested
        everything, pool = self.statistics, block.pool.statistics
        if self.limit <= size:
            self.oversize_allocations.decrease(1)
        if block.streams:
            everything.wait(size)
            pool.wait(size)
            block.state = PENDING
            self.pending.append(block)
            requested_bytes = 0  # counted until the block may be reused
        else:
            self._reuse(block)
        everything.free(size, requested_bytes)
        pool.free(size, requested_bytes)

    def record_stream(self, block: Block, stream: int) -> None:
        """`block` is also used on `stream`, so it may not be reused right after it is freed.

        When the GPU is done with it only the GPU knows: here it is at the next `synchronize` (which
        `empty_cache` and the retry on a full device imply), the latest moment possible.
        """
        if stream != block.pool.stream:
            block.streams = (block.streams or set()) | {stream}

    def empty_cache(self) -> None:
        """`torch.cuda.empty_cache()`: whole segments that nothing uses go back to the driver."""
        release.release_cached_blocks(self)

    # -- figures -----------------------------------------------------------------------------------------

    def reset_peaks(self) -> None:
        """`torch.cuda.reset_peak_memory_stats()`."""
        for statistics in (self.statistics, self.small_statistics, self.large_statistics):
            statistics.reset_peaks()
        for stat in (self.oversize_allocations, self.oversize_segments):
            stat.peak = stat.current

    def reset_accumulated(self) -> None:
        """`torch.cuda.reset_accumulated_memory_stats()`."""
        for statistics in (self.statistics, self.small_statistics, self.large_statistics):
            statistics.reset_accumulated()
        for stat in (self.oversize_allocations, self.oversize_segments):
            stat.reset_accumulated()
        self.retries = self.ooms = self.device_allocs = self.device_frees = 0

    def stats(self) -> dict[str, int]:
        """The figures under the keys of `torch.cuda.memory_stats()`."""
        figures = {
            "max_split_size": -1 if self.config.max_split_bytes is None else self.config.max_split_bytes,
            "num_alloc_retries": self.retries,
            "num_device_alloc": self.device_allocs,
            "num_device_free": self.device_frees,
            "num_ooms": self.ooms,
        }
        pools = {
            "all": self.statistics,
            "large_pool": self.large_statistics,
            "small_pool": self.small_statistics,
        }
        for name, statistics in pools.items():
            figures.update(statistics.items(name))
        figures.update(self.oversize_allocations.items("oversize_allocations"))
        figures.update(self.oversize_segments.items("oversize_segments"))
        return dict(sorted(figures.items()))

    def snapshot_segments(self) -> list[SegmentView]:
        """Every segment with the blocks that tile it, by address."""
        views = (view(self.segments[address]) for address in sorted(self.segments))
        return [segment for segment in views if segment.blocks]

    # -- the rules, step by step -------------------------------------------------------------------------

    def _choose(self, pool: Pool, index: int, size: int) -> int:
        """The index of the free block to use, len(keys) for none (get_free_block)."""
        if self.collects_garbage:
            self.searches[pool.small] += 1
        keys, none = pool.keys, len(pool.keys)
        if index == none:
            return none
        block = pool.by_key[keys[index]]
        if block.segment.expandable:
            # what can still grow counts with the size it can grow to, so that it is used last
            while index + 1 < none and block.segment.expandable:
                following = pool.by_key[keys[index + 1]]
                if _grown_bytes(following) >= _grown_bytes(block):
                    break
                block, index = following, index + 1
        limit = self.config.max_split_bytes
        if limit is not None:
            if size < limit <= block.size:
                return none
            if size >= limit and block.size >= size + self.config.max_non_split_rounding_bytes:
                return none
        return index

    def _carve(self, pool: Pool, block: Block, size: int) -> None:
        """Cut `size` off the front of a free block if the remainder is worth keeping (alloc_found_block)."""
        remaining, was_split = block.size - size, block.is_split
        blocks = change = 0
        if remaining and rules.should_split(remaining, size, pool.small, self.config):
            rest = block.split_off(size, FREE)
            self._add_free(rest)
            blocks, change = (0, -size) if was_split else (1, remaining)
        elif was_split:
            blocks, change = -1, -block.size
        if change and not block.segment.expandable:
            self.statistics.split(blocks, change)
            pool.statistics.split(blocks, change)


def _grown_bytes(block: Block) -> int:
    """The size a block of an expandable segment can grow to: with the unmapped part behind it."""
    following = block.next
    return block.size + (following.size if following is not None and following.state is UNMAPPED else 0)
