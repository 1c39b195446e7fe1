"""The state of an allocator: its segments, the pools of free blocks, and what is counted.

What asks the driver (grow), gives back (release) and maps pages (expandable) works on it; the allocator
itself (simulator) is a state with `malloc` and `free`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

from memlens.allocator import rules
from memlens.allocator.blocks import FREE, Block, Pool, Segment
from memlens.allocator.config import AllocatorConfig
from memlens.allocator.statistics import PoolStatistics, Stat

# kind (alloc, free, map, unmap), address, bytes, stream, small pool: as the allocator's own trace records it
SegmentCallback: TypeAlias = Callable[[str, int, int, int, bool], None]
# bytes, stream, small pool -> the address of the next segment
Addresses: TypeAlias = Callable[[int, int, bool], int]

NO_LIMIT = 1 << 63  # max_split_size where none is set
FIRST_ADDRESS = 0x7F00_0000_0000  # drivers hand out ascending addresses of about this magnitude


class AllocatorState:
    """Segments, pools and figures of one device; the arguments are those of `CachingAllocator`."""

    def __init__(
        self,
        config: AllocatorConfig | None = None,
        capacity_bytes: int | None = None,
        *,
        total_bytes: int | None = None,
        on_segment: SegmentCallback | None = None,
        addresses: Addresses | None = None,
        statistics: type[PoolStatistics] = PoolStatistics,
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self.total_bytes = capacity_bytes if total_bytes is None else total_bytes
        self.on_segment = on_segment
        self.allowed_bytes: int | None = None  # only where a memory fraction below one is set
        self.configure(config or AllocatorConfig())
        self.segments: dict[int, Segment] = {}
        self.statistics = statistics()
        self.small_statistics = statistics()
        self.large_statistics = statistics()
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

    def synchronize(self) -> None:
        """Every stream is done: blocks that waited for one become free."""
        waiting, self.pending = self.pending, []
        for block in waiting:
            block.streams = None
            self.statistics.done(block.size, block.requested)
            block.pool.statistics.done(block.size, block.requested)
            self._reuse(block)

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
