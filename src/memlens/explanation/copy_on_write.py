"""What forked workers copied of the memory that they shared with their parent.

A fork shares every page until somebody writes to it. Python writes a reference count into each object that it
looks at, so workers that only read a list of objects end with a copy of it each (pytorch#13246).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from memlens.model.events import Sample

if TYPE_CHECKING:
    from memlens.model.trace import Trace

TELLING_BYTES = 16 << 20  # an interpreter's own modules, never imported again, are copied too
TELLING_SHARE = 0.1  # of what they and their parent hold


@dataclass(frozen=True, slots=True)
class Copied:
    """Bytes that `workers` processes forked from one parent hold apart, and held together at first.

    At least: copies made before the first reading are not seen. Memory that is new counts in RSS and in PSS,
    a copied page in PSS alone, since it was in RSS before: the growth of PSS without that of RSS is what was
    copied.
    """

    parent: str
    workers: int
    bytes: int

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def find_copied(trace: Trace) -> Copied | None:
    """Of the program's forked workers that lived together; None where nothing telling was copied.

    >>> from memlens.model import Process, Sample, Trace
    >>> MIB = 1 << 20
    >>> shares = [(0, 1, 100, 50), (0, 2, 100, 50), (9, 1, 100, 100), (9, 2, 100, 100)]
    >>> samples = [Sample(time, pid, rss * MIB, pss * MIB) for time, pid, rss, pss in shares]
    >>> find_copied(Trace("measured", samples, processes=[Process(1, "train.py"), Process(2, "train.py", 1)]))
    Copied(parent='train.py', workers=1, bytes=104857600)
    """
    names = {process.pid: process.name for process in trace.processes}
    forked: dict[int, set[int]] = {}  # a parent -> its children that run its own program
    for process in trace.processes:
        if process.parent is not None and names.get(process.parent) == process.name:
            forked.setdefault(process.parent, set()).add(process.pid)
    if not forked:
        return None
    ticks: dict[int, dict[int, tuple[int, int]]] = {}
    for event in trace.events:
        if isinstance(event, Sample) and event.pss_bytes is not None and event.rss_bytes is not None:
            ticks.setdefault(event.time_us, {})[event.pid] = event.rss_bytes, event.pss_bytes
    copies = [
        Copied(names[parent], len(workers), size)
        for parent, children in forked.items()
        for workers, size in [_count_unshared(parent, children, ticks)]
        if size
    ]
    return max(copies, key=lambda each: each.bytes, default=None)


def _count_unshared(
    parent: int, children: set[int], ticks: dict[int, dict[int, tuple[int, int]]]
) -> tuple[set[int], int]:
    """The largest set of children that lived at once, and how much less they share than at first."""
    alive = [children & held.keys() for held in ticks.values() if parent in held]
    workers = max(alive, key=len, default=set())
    family = workers | {parent}
    sums = [
        tuple(sum(held[pid][which] for pid in family) for which in (0, 1))
        for held in ticks.values()
        if family <= held.keys()
    ]
    if not workers or not sums:
        return workers, 0
    rss, pss = sums[0]
    # a page that one of them gave back is shared less, too, and takes nothing more
    size, whole = max((min(p - pss, (p - pss) - (r - rss)), p) for r, p in sums)
    return workers, size if size >= max(TELLING_BYTES, TELLING_SHARE * whole) else 0
