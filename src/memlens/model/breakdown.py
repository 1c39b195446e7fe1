"""Who holds the memory at one moment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from memlens.model.category import Category
from memlens.model.events import Alloc, Event, Free

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Breakdown:
    """The allocations alive after event number `index`, with the sums that close over them."""

    index: int
    live: tuple[Alloc, ...]
    baseline_bytes: int = 0

    @property
    def allocated_bytes(self) -> int:
        return self.baseline_bytes + sum(alloc.bytes for alloc in self.live)

    def by(self, key: Callable[[Alloc], K]) -> dict[K, int]:
        """Bytes per `key(allocation)`, largest first.

        >>> Breakdown(1, (Alloc(1, 512), Alloc(2, 1024))).by(lambda a: a.id)
        {2: 1024, 1: 512}
        """
        sums: defaultdict[K, int] = defaultdict(int)
        for alloc in self.live:
            sums[key(alloc)] += alloc.bytes
        return dict(sorted(sums.items(), key=lambda item: -item[1]))

    def by_category(self) -> dict[Category, int]:
        """Bytes per category; what was there before the recording began counts as unknown."""
        sums = self.by(lambda alloc: alloc.category)
        if self.baseline_bytes:
            sums[Category.UNKNOWN] = sums.get(Category.UNKNOWN, 0) + self.baseline_bytes
        return sums

    def by_module(self) -> dict[str | None, int]:
        return self.by(lambda alloc: alloc.site.module)

    def by_line(self) -> dict[str, int]:
        return self.by(lambda alloc: alloc.site.where)


def breakdown_at(events: Sequence[Event], index: int, baseline_bytes: int = 0) -> Breakdown:
    """The allocations that are alive after event number `index` (-1: before the first)."""
    live: dict[int, Alloc] = {}
    for event in events[: index + 1]:
        if isinstance(event, Alloc):
            live[event.id] = event
        elif isinstance(event, Free):
            del live[event.id]
    return Breakdown(index, tuple(live.values()), baseline_bytes)
