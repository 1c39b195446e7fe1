"""What the allocator counts, in the shape of `torch.cuda.memory_stats()`."""

from __future__ import annotations

from collections.abc import Iterator


class Stat:
    """A number that goes up and down: how much now, at most, and in all (CachingAllocator::Stat)."""

    __slots__ = ("allocated", "current", "peak", "start")

    def __init__(self) -> None:
        self.current = self.peak = self.allocated = self.start = 0

    def increase(self, amount: int) -> None:
        self.allocated += amount
        self.current = current = self.current + amount
        if current > self.peak:
            self.peak = current

    def decrease(self, amount: int) -> None:
        self.current -= amount

    def reset_accumulated(self) -> None:
        """What was allocated and freed counts from now on."""
        self.allocated, self.start = 0, self.current

    def items(self, name: str) -> Iterator[tuple[str, int]]:
        yield f"{name}.current", self.current
        yield f"{name}.peak", self.peak
        yield f"{name}.allocated", self.allocated
        yield f"{name}.freed", self.allocated + self.start - self.current


class PoolStatistics:
    """The statistics of one pool, or of both together.

    Active is what is allocated or waits for another stream. Nearly always nothing waits, so it is not
    counted by itself but added up when asked for; only its peaks while something waits are kept.
    """

    __slots__ = (
        "allocated_bytes",
        "allocation",
        "inactive_split",
        "inactive_split_bytes",
        "pending_blocks",
        "pending_bytes",
        "pending_peak_blocks",
        "pending_peak_bytes",
        "requested_bytes",
        "reserved_bytes",
        "segment",
    )
    _COUNTED = (
        "allocated_bytes",
        "allocation",
        "inactive_split",
        "inactive_split_bytes",
        "requested_bytes",
        "reserved_bytes",
        "segment",
    )

    def __init__(self) -> None:
        self.allocation = Stat()
        self.allocated_bytes = Stat()
        self.requested_bytes = Stat()
        self.inactive_split = Stat()
        self.inactive_split_bytes = Stat()
        self.segment = Stat()
        self.reserved_bytes = Stat()
        self.pending_blocks = self.pending_bytes = 0
        self.pending_peak_blocks = self.pending_peak_bytes = 0

    def malloc(self, size: int, requested_bytes: int) -> None:
        self.allocation.increase(1)
        self.allocated_bytes.increase(size)
        self.requested_bytes.increase(requested_bytes)
        if self.pending_blocks:
            self._note_active_peaks()

    def free(self, size: int, requested_bytes: int) -> None:
        self.allocation.current -= 1
        self.allocated_bytes.current -= size
        self.requested_bytes.current -= requested_bytes

    def wait(self, size: int) -> None:
        """A freed block waits for other streams: it was active and stays so (called before `free`)."""
        self._note_active_peaks()
        self.pending_blocks += 1
        self.pending_bytes += size

    def done(self, size: int, requested_bytes: int) -> None:
        """No stream uses the block any more."""
        self.pending_blocks -= 1
        self.pending_bytes -= size
        self.requested_bytes.current -= requested_bytes

    def _note_active_peaks(self) -> None:
        blocks = self.allocation.current + self.pending_blocks
        size = self.allocated_bytes.current + self.pending_bytes
        self.pending_peak_blocks = max(self.pending_peak_blocks, blocks)
        self.pending_peak_bytes = max(self.pending_peak_bytes, size)

    def split(self, blocks: int, size: int) -> None:
        """The free parts of split segments changed by so many blocks and bytes."""
        if blocks > 0:
            self.inactive_split.increase(blocks)
        else:
            self.inactive_split.current += blocks
        if size > 0:
            self.inactive_split_bytes.increase(size)
        else:
            self.inactive_split_bytes.current += size

    def reset_peaks(self) -> None:
        for name in self._COUNTED:
            stat = getattr(self, name)
            stat.peak = stat.current
        self.pending_peak_blocks = self.pending_peak_bytes = 0
        if self.pending_blocks:
            self._note_active_peaks()

    def reset_accumulated(self) -> None:
        for name in self._COUNTED:
            getattr(self, name).reset_accumulated()

    def items(self, pool: str) -> Iterator[tuple[str, int]]:
        for name in self._COUNTED:
            yield from getattr(self, name).items(f"{name}.{pool}")
        for name, stat, pending, peak in (
            ("active", self.allocation, self.pending_blocks, self.pending_peak_blocks),
            ("active_bytes", self.allocated_bytes, self.pending_bytes, self.pending_peak_bytes),
        ):
            active = Stat()
            active.current = stat.current + pending
            active.peak, active.allocated = max(stat.peak, peak), stat.allocated
            yield from active.items(f"{name}.{pool}")


class PeaksOnly(PoolStatistics):
    """Allocated and reserved bytes alone, for replays that ask for nothing else: a quarter less time."""

    def malloc(self, size: int, requested_bytes: int) -> None:
        self.allocated_bytes.increase(size)

    def free(self, size: int, requested_bytes: int) -> None:
        self.allocated_bytes.current -= size

    def split(self, blocks: int, size: int) -> None:
        pass
