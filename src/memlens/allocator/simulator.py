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
from collections.abc import Callable, Iterator
from typing import TypeAlias

from memlens.allocator import grow, release, rules
from memlens.allocator.blocks import (
    FREE,
    KEY_SHIFT,
    PENDING,
    UNMAPPED,
    USED,
    Block,
    Pool,
    Segment,
    SegmentView,
    view,
)
from memlens.allocator.config import AllocatorConfig
from memlens.allocator.statistics import PoolStatistics, Stat

# kind (alloc, free, map, unmap), address, bytes, stream, small pool: as the allocator's own trace records it
SegmentCallback: TypeAlias = Callable[[str, int, int, int, bool], None]
# bytes, stream, small pool -> the address of the next segment
Addresses: TypeAlias = Callable[[int, int, bool], int]

NO_LIMIT = 1 << 63  # max_split_size where none is set
FIRST_ADDRESS = 0x7F00_0000_0000  # drivers hand out ascending addresses of about this magnitude


class CachingAllocator:
    """One device's allocator.

    Args:
        config: the settings, PyTorch's defaults if left out.
        capacity_bytes: what all segments together may take; None is a device that never fills.
        total_bytes: the device's memory, for the text of errors; `capacity_bytes` if left out.
        on_segment: called with (kind, address, bytes, stream, small) as segments come and go.
        addresses: gives the next segment's address, to replay a recording.

    `malloc` raises `DeviceFull` where PyTorch raises `torch.OutOfMemoryError`.
    """

    def __init__(
        self,
        config: AllocatorConfig | None = None,
        capacity_bytes: int | None = None,
        *,
        total_bytes: int | None = None,
        on_segment: SegmentCallback | None = None,
        addresses: Addresses | None = None,
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self.total_bytes = capacity_bytes if total_bytes is None else total_bytes
        self.on_segment = on_segment
        self.allowed_bytes: int | None = None  # only where a memory fraction below one is set
        self.configure(config or AllocatorConfig())
        self.segments: dict[int, Segment] = {}
        self.statistics = PoolStatistics()
        self.small_statistics = PoolStatistics()
        self.large_statistics = PoolStatistics()
        self.searches = {True: 0, False: 0}  # per size class: the clock of the garbage collector
        self.pending: list[Block] = []  # freed, but other streams may still use them
        self.retries = self.ooms = self.device_allocs = self.device_frees = 0
        self.oversize_allocations, self.oversize_segments = Stat(), Stat()
        self._pools: dict[tuple[int, bool], Pool] = {}
        self.next_address = addresses or self._following_address
        self._free_address = FIRST_ADDRESS

    def configure(self, config: AllocatorConfig) -> None:
        """Go by these settings from now on; the segments that are there stay as they are."""
        self.config = config
        if config.per_process_memory_fraction < 1 and self.total_bytes is not None:
            self.allowed_bytes = int(config.per_process_memory_fraction * self.total_bytes)
        self.collects_garbage = config.garbage_collection_threshold > 0 and self.allowed_bytes is not None
        # the two settings that make the choice of a block more than "the first that fits"
        self._picky = (
            config.expandable_segments or config.max_split_bytes is not None or self.collects_garbage
        )
        self.limit = config.max_split_bytes or NO_LIMIT
        self._rounds_by_512 = not any(config.roundup_power2_divisions)

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

    def synchronize(self) -> None:
        """Every stream is done: blocks that waited for one become free."""
        waiting, self.pending = self.pending, []
        for block in waiting:
            block.streams = None
            self.statistics.done(block.size, block.requested)
            block.pool.statistics.done(block.size, block.requested)
            self._reuse(block)

    def empty_cache(self) -> None:
        """`torch.cuda.empty_cache()`: whole segments that nothing uses go back to the driver."""
        release.release_cached_blocks(self)

    # -- figures -----------------------------------------------------------------------------------------

    @property
    def allocated_bytes(self) -> int:
        return self.statistics.allocated_bytes.current

    @property
    def max_allocated_bytes(self) -> int:
        return self.statistics.allocated_bytes.peak

    @property
    def reserved_bytes(self) -> int:
        return self.statistics.reserved_bytes.current

    @property
    def max_reserved_bytes(self) -> int:
        return self.statistics.reserved_bytes.peak

    @property
    def free_bytes(self) -> int | None:
        """What the device still has; None for one that never fills."""
        return None if self.capacity_bytes is None else self.capacity_bytes - self.reserved_bytes

    def reset_peaks(self) -> None:
        """`torch.cuda.reset_peak_memory_stats()`."""
        for statistics in (self.statistics, self.small_statistics, self.large_statistics):
            statistics.reset_peaks()
        for stat in (self.oversize_allocations, self.oversize_segments):
            stat.peak = stat.current

    def stats(self) -> dict[str, int]:
        """The figures under the keys of `torch.cuda.memory_stats()`."""
        found = {
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
            found.update(statistics.items(name))
        found.update(self.oversize_allocations.items("oversize_allocations"))
        found.update(self.oversize_segments.items("oversize_segments"))
        return dict(sorted(found.items()))

    def snapshot_segments(self) -> list[SegmentView]:
        """Every segment with the blocks that tile it, by address."""
        views = (view(self.segments[address]) for address in sorted(self.segments))
        return [segment for segment in views if segment.blocks]

    def pool(self, stream: int, small: bool) -> Pool:
        """The free blocks of one stream and size class."""
        pool = self._pools.get((stream, small))
        if pool is None:
            statistics = self.small_statistics if small else self.large_statistics
            pool = self._pools[stream, small] = Pool(stream, small, statistics)
        return pool

    def pools(self, small: bool) -> Iterator[Pool]:
        """The pools of one size class, by stream."""
        return (self._pools[key] for key in sorted(self._pools) if key[1] is small)

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
                if _grown(following) >= _grown(block):
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
        """Cut `size` off the front of the free `block`, if its rest is worth keeping (alloc_found_block)."""
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

    def _reuse(self, block: Block) -> None:
        """Merge a freed block with its free neighbours and put it into its pool (free_block)."""
        pool = block.pool
        block.state = FREE
        blocks = change = 0
        for neighbour in (block.prev, block.next):
            if neighbour is not None and neighbour.state is FREE:
                blocks, change = blocks - 1, change - neighbour.size
        block = pool.merge(block)
        self._add_free(block)
        if block.segment.expandable:
            return
        if block.is_split:
            blocks, change = blocks + 1, change + block.size
        if change:
            self.statistics.split(blocks, change)
            pool.statistics.split(blocks, change)

    def _add_free(self, block: Block) -> None:
        block.freed_at_search = self.searches[block.pool.small]
        block.pool.add(block)

    def has_room(self, size: int) -> bool:
        return self.capacity_bytes is None or self.reserved_bytes + size <= self.capacity_bytes

    def count_segment(self, kind: str, address: int, size: int, pool: Pool) -> None:
        """Book physical memory that came (alloc, map) or went (free, unmap), and tell the listener."""
        gained, whole = kind in ("alloc", "map"), kind in ("alloc", "free")
        for statistics in (self.statistics, pool.statistics):
            for stat, amount in ((statistics.reserved_bytes, size), (statistics.segment, int(whole))):
                if gained:
                    stat.increase(amount)
                else:
                    stat.decrease(amount)
        if whole and self.limit <= size:
            self.oversize_segments.increase(1) if gained else self.oversize_segments.decrease(1)
        self.device_allocs += gained
        self.device_frees += not gained
        if self.on_segment is not None:
            self.on_segment(kind, address, size, pool.stream, pool.small)

    def _following_address(self, size: int, stream: int, small: bool) -> int:
        address = self._free_address
        self._free_address += -(-size // rules.ROUND_LARGE_BYTES) * rules.ROUND_LARGE_BYTES
        return address


def _grown(block: Block) -> int:
    """The size a block of an expandable segment can grow to: with the unmapped part behind it."""
    following = block.next
    return block.size + (following.size if following is not None and following.state is UNMAPPED else 0)
