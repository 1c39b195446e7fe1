"""What the allocator holds unused: by pool, and how much of it could go back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from memlens.allocator.blocks import SegmentView


@dataclass(frozen=True, slots=True)
class PoolUse:
    """The segments of one size class. `free_bytes` = `releasable_bytes` + what living blocks pin.

    A request can use the largest free block at most; `empty_cache()` can release whole free segments only.
    """

    pool: str
    segments: int
    reserved_bytes: int
    used_bytes: int
    free_bytes: int
    largest_free_bytes: int
    releasable_bytes: int

    @property
    def pinned_bytes(self) -> int:
        """Free memory inside segments where something is alive."""
        return self.free_bytes - self.releasable_bytes

    def to_dict(self) -> dict[str, str | int]:
        """A row of `pools` in `memlens snapshot --json`."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def pool_use(segments: Iterable[SegmentView]) -> list[PoolUse]:
    """The use of the small pool (requests up to 1 MiB) and of the large one.

    >>> from memlens.allocator import CachingAllocator
    >>> allocator = CachingAllocator()
    >>> block = allocator.malloc(4 << 20)
    >>> [(use.pool, use.largest_free_bytes >> 20) for use in pool_use(allocator.snapshot_segments())]
    [('small', 0), ('large', 16)]
    """
    held = list(segments)
    return [_use(name, [view for view in held if view.small is small]) for name, small in _POOLS]


_POOLS = (("small", True), ("large", False))


def _use(name: str, segments: list[SegmentView]) -> PoolUse:
    free = [block.bytes for view in segments for block in view.blocks if block.state == "free"]
    reserved = sum(view.bytes for view in segments)
    return PoolUse(
        pool=name,
        segments=len(segments),
        reserved_bytes=reserved,
        used_bytes=reserved - sum(free),
        free_bytes=sum(free),
        largest_free_bytes=max(free, default=0),
        releasable_bytes=sum(view.bytes for view in segments if view.free_bytes == view.bytes),
    )
