"""Who holds memory: bytes and number of allocations by line, module, operator or anything else.

>>> from memlens.model import Alloc, Breakdown, Site
>>> held = Breakdown(2, (Alloc(1, 512), Alloc(2, 1024), Alloc(3, 512)))
>>> held_by(held, lambda alloc: alloc.bytes)
{512: Held(bytes=1024, allocations=2), 1024: Held(bytes=1024, allocations=1)}
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple, TypeVar

from memlens.model import Alloc, Breakdown, Trace

K = TypeVar("K", bound=Hashable)


class Held(NamedTuple):
    """What belongs together holds."""

    bytes: int
    allocations: int


def held_by(held: Breakdown, key: Callable[[Alloc], K]) -> dict[K, Held]:
    """Bytes and allocations by `key(allocation)`, in the order of the first allocation of each."""
    sums: dict[K, Held] = {}
    for alloc in held.live:
        name = key(alloc)
        size, count = sums.get(name, (0, 0))
        sums[name] = Held(size + alloc.bytes, count + 1)
    return sums


def held_by_name(trace: Trace, held: Breakdown, key: Callable[[Alloc], str]) -> dict[str, Held]:
    """The same by a name that may be empty: what was there before the recording began has one too."""
    start = trace.metadata.get("baseline_events", 0)
    before = trace.marks[0].name if start and trace.marks else "before the recording"
    sums = {before: Held(held.baseline_bytes, 0)} if held.baseline_bytes else {}
    known = held_by(held, lambda alloc: key(alloc) or (before if alloc.id < start else ""))
    for name, (size, count) in known.items():
        size_before, count_before = sums.get(name, (0, 0))
        sums[name] = Held(size_before + size, count_before + count)
    return sums


def largest_first(sums: dict[K, Held]) -> list[tuple[K, Held]]:
    """The rows of a table."""
    return sorted(sums.items(), key=lambda item: -item[1].bytes)
