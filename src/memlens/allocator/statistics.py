"""What the allocator counts, in the shape of `torch.cuda.memory_stats()`."""

from __future__ import annotations

from collections.abc import Iterator


class Stat:
    """A number that goes up and down: how much now, at most, and in all (CachingAllocator::Stat)."""

    __slots__ = ("allocated", "current", "peak")

    def __init__(self) -> None:
        self.current = self.peak = self.allocated = 0

    def increase(self, amount: int) -> None:
        self.allocated += amount
        self.current = current = self.current + amount
        if current > self.peak:
            self.peak = current

    def decrease(self, amount: int) -> None:
        self.current -= amount

    def items(self, name: str) -> Iterator[tuple[str, int]]:
        yield f"{name}.current", self.current
        yield f"{name}.peak", self.peak
        yield f"{name}.allocated", self.allocated
        yield f"{name}.freed", self.allocated - self.current


class PoolStatistics:
    """The statistics of one pool, or of both together."""

    __slots__ = (
        "active",
        "active_bytes",
        "allocated_bytes",
        "allocation",
        "inactive_split",
        "inactive_split_bytes",
        "requested_bytes",
        "reserved_bytes",
        "segment",
    )

    active: Stat
    active_bytes: Stat
    allocated_bytes: Stat
    allocation: Stat
    inactive_split: Stat
    inactive_split_bytes: Stat
    requested_bytes: Stat
    reserved_bytes: Stat
    segment: Stat

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, Stat())

    def malloc(self, size: int, requested_bytes: int) -> None:
        self.allocation.increase(1)
        self.allocated_bytes.increase(size)
        self.active.increase(1)
        self.active_bytes.increase(size)
        self.requested_bytes.increase(requested_bytes)

    def free(self, size: int) -> None:
        """The user gave the block back; it stays active until every stream is done with it."""
        self.allocation.current -= 1
        self.allocated_bytes.current -= size

    def reuse(self, size: int, requested_bytes: int) -> None:
        """The block may be handed out again."""
        self.active.current -= 1
        self.active_bytes.current -= size
        self.requested_bytes.current -= requested_bytes

    def split(self, blocks: int, size: int) -> None:
        """The free parts of split segments changed by so many blocks and bytes."""
        for stat, change in ((self.inactive_split, blocks), (self.inactive_split_bytes, size)):
            if change > 0:
                stat.increase(change)
            elif change:
                stat.decrease(-change)

    def reset_peaks(self) -> None:
        for name in self.__slots__:
            stat = getattr(self, name)
            stat.peak = stat.current

    def items(self, pool: str) -> Iterator[tuple[str, int]]:
        for name in self.__slots__:
            yield from getattr(self, name).items(f"{name}.{pool}")
