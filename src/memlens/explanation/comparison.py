"""Two records side by side: what differs, by how much, and why where that is known.

>>> from memlens.model import Alloc, Trace
>>> before, after = Trace("measured", [Alloc(1, 4096)]), Trace("measured", [Alloc(1, 2048)])
>>> difference = compare_traces(before, after).differences("total")[0]
>>> difference.key, difference.delta_bytes
('allocated at the peak', -2048)
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memlens.answers import Answer
from memlens.explanation.curves import curves, total, unsampled_curves
from memlens.explanation.explain import as_trace
from memlens.explanation.held import held_by
from memlens.model import FIGURES
from memlens.model.category import Category
from memlens.model.events import Alloc, SegmentAlloc
from memlens.model.trace import Trace
from memlens.units import format_bytes, path_tail

KINDS = ("total", "phase", "category", "module", "line")
ROUNDING = 0.02  # blocks are multiples of 512 bytes, so half of a tensor is not quite half of its block
NO_LINE = "(no line known)"


@dataclass(frozen=True, slots=True)
class Difference:
    """One figure of both records; None where a record has no such thing. `count` is of allocations."""

    kind: str
    key: str
    a_bytes: int | None
    b_bytes: int | None
    a_count: int = 0
    b_count: int = 0
    reason: str = ""

    @property
    def delta_bytes(self) -> int:
        """How much more B has."""
        return (self.b_bytes or 0) - (self.a_bytes or 0)

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "key": self.key,
            "a_bytes": self.a_bytes,
            "b_bytes": self.b_bytes,
            "delta_bytes": self.delta_bytes,
            "a_allocations": self.a_count,
            "b_allocations": self.b_count,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True, repr=False)
class Comparison(Answer):
    """Every figure of both records, those that differ most first within their kind."""

    a: str
    b: str
    a_origin: str
    b_origin: str
    rows: tuple[Difference, ...]
    notes: tuple[str, ...] = ()

    def differences(self, kind: str) -> list[Difference]:
        """The rows of a kind that differ: total, phase, category, module or line."""
        return [row for row in self.rows if row.kind == kind and row.delta_bytes]

    def of(self, kind: str) -> list[Difference]:
        """All rows of a kind."""
        return [row for row in self.rows if row.kind == kind]

    def headline(self) -> str:
        """The first total that both have, and how much more B has."""
        figures = ""
        for row in self.of("total"):
            if row.a_bytes is not None and row.b_bytes is not None:
                figures = f": {row.key} {format_bytes(row.a_bytes)} and {format_bytes(row.b_bytes)}"
                break
        return f"{self.a} ({self.a_origin}) and {self.b} ({self.b_origin}){figures}"

    def to_rows(self) -> list[dict[str, Any]]:
        """A row for each figure."""
        return [row.to_dict() for row in self.rows]

    def to_dict(self) -> dict[str, Any]:
        """Schema `memlens.comparison/1`."""
        return {
            "schema": "memlens.comparison/1",
            "a": {"name": self.a, "origin": self.a_origin},
            "b": {"name": self.b, "origin": self.b_origin},
            "rows": [row.to_dict() for row in self.rows],
            "notes": list(self.notes),
        }


def compare(a: Any, b: Any) -> Comparison:
    """What differs between two records, the biggest differences first.

    Each is a file that memlens reads (.memlens, a torch snapshot, mprofile_*.dat), a `Trace`, or what has one
    (a prediction, a simulation). Raises RecordError for a file of no known kind.

    Example:
        >>> from memlens.model import Alloc
        >>> compare(Trace("measured", [Alloc(1, 512)]), Trace("measured")).rows[0].delta_bytes
        -512
    """
    return compare_traces(as_trace(a), as_trace(b), (_name(a, "A"), _name(b, "B")))


def _name(record: Any, otherwise: str) -> str:
    return Path(record).name if isinstance(record, str | os.PathLike) else otherwise


def compare_traces(a: Trace, b: Trace, names: tuple[str, str] = ("A", "B")) -> Comparison:
    """Align two records by phase, category, module and line; who holds memory is looked up at each peak."""
    rows = [*_totals(a, b), *_sampled(a, b)]
    if _has_allocations(a) and _has_allocations(b):
        rows += _phases(a, b)
        rows += _holders(a, b)
    rows.sort(key=lambda row: (KINDS.index(row.kind), -abs(row.delta_bytes)))
    return Comparison(*names, a.origin, b.origin, tuple(rows), tuple(_notes(a, b, names)))


def _has_allocations(trace: Trace) -> bool:
    return any(isinstance(event, Alloc) for event in trace.events)


def _totals(a: Trace, b: Trace) -> Iterator[Difference]:
    peaks = [_peaks(trace) if _has_allocations(trace) else {} for trace in (a, b)]
    for key in dict.fromkeys((*peaks[0], *peaks[1])):
        yield Difference("total", key, peaks[0].get(key), peaks[1].get(key))


def _peaks(trace: Trace) -> dict[str, int]:
    timeline = trace.timeline()
    peaks = {"allocated at the peak": timeline.peak_allocated_bytes}
    if any(isinstance(event, SegmentAlloc) for event in trace.events):
        peaks["reserved at its peak"] = timeline.peak_reserved_bytes
        if trace.device is not None and trace.device.context_bytes[1]:
            peaks["process at its peak"] = timeline.peak_reserved_bytes + trace.device.context_bytes[1]
    if timeline.allocated:
        peaks["allocated at the end"] = timeline.allocated[-1]
    return peaks


def _sampled(a: Trace, b: Trace) -> Iterator[Difference]:
    """Peaks of processes, over all of a record's processes at the same moment."""
    for figure, (_, words) in FIGURES.items():
        peaks = [_peak_bytes(trace, figure) for trace in (a, b)]
        if peaks != [None, None]:
            yield Difference("total", f"peak {words}", peaks[0], peaks[1])


def _peak_bytes(trace: Trace, figure: str) -> int | None:
    parts = curves(trace, figure) or (unsampled_curves(trace) if figure == "rss" else [])
    return total(parts).peak_bytes if parts else None


def _phases(a: Trace, b: Trace) -> Iterator[Difference]:
    """The highest of each phase of each step: `backward, step 2`."""
    both = []
    for trace in (a, b):
        timeline, peaks = trace.timeline(), dict[str, int]()
        for mark, start, end in trace.phases():
            peak = timeline.peak_between(start, end)[0]
            peaks[mark.title] = max(peaks.get(mark.title, 0), peak)
        both.append(peaks)
    for key in dict.fromkeys((*both[0], *both[1])):
        yield Difference("phase", key, both[0].get(key), both[1].get(key))


def _holders(a: Trace, b: Trace) -> Iterator[Difference]:
    """Who holds memory at each record's own peak."""
    at_peak = a.breakdown(), b.breakdown()
    for kind, key in _KEYS.items():
        held = [held_by(breakdown, key) for breakdown in at_peak]
        if kind == "module" and not (set(held[0]) - {""} and set(held[1]) - {""}):
            continue  # a record that knows no modules would only show that
        for name in dict.fromkeys((*held[0], *held[1])):
            a_bytes, a_count = held[0].get(name, (None, 0))
            b_bytes, b_count = held[1].get(name, (None, 0))
            reason = reason_of(kind, name, (a_bytes, a_count), (b_bytes, b_count), (a, b))
            yield Difference(kind, name or "(no module)", a_bytes, b_bytes, a_count, b_count, reason)


def place(alloc: Alloc) -> str:
    """`folder/file.py:12`: the same line of a program that was kept elsewhere."""
    if not alloc.site.file:
        return NO_LINE
    return f"{path_tail(alloc.site.file)}:{alloc.site.line}"


_KEYS: dict[str, Callable[[Alloc], str]] = {
    "category": lambda alloc: alloc.category.value,
    "module": lambda alloc: alloc.site.module or "",
    "line": place,
}


def reason_of(
    kind: str,
    key: str,
    a: tuple[int | None, int],
    b: tuple[int | None, int],
    traces: tuple[Trace, Trace],
) -> str:
    """Why two figures differ, where the records tell; empty where they do not.

    >>> reason_of("line", "net.py:3", (8192, 2), (4096, 2), (Trace("measured"), Trace("measured")))
    'the same 2 allocations, each 0.5 times as large'
    """
    (a_bytes, a_count), (b_bytes, b_count) = a, b
    if a_bytes == b_bytes:
        return ""
    if a_bytes is None or b_bytes is None:
        where = "A" if b_bytes is None else "B"
        if kind == "category" and (reason := _missing_category_reason(key, traces["AB".index(where) ^ 1])):
            return reason
        return f"only in {where}"
    if a_count == b_count:
        ratio = b_bytes / a_bytes
        for whole in (0.25, 0.5, 2.0, 4.0):  # what another precision does
            if abs(ratio / whole - 1) <= ROUNDING:
                return f"the same {a_count} allocations, each {whole:g} times as large"
        return f"as many allocations ({a_count}), of other sizes"
    return f"{b_count} allocations instead of {a_count}"


def _missing_category_reason(category: str, other: Trace) -> str:
    """A record that cannot tell categories apart is no proof that there was none."""
    categories = {event.category for event in other.events if isinstance(event, Alloc)}
    if categories <= {Category.UNKNOWN}:
        return "the other record does not say what allocations are for"
    if category == Category.UNKNOWN.value:
        return "the other record says what each is for"
    return ""


def _notes(a: Trace, b: Trace, names: tuple[str, str]) -> Iterator[str]:
    """What makes the two hard to compare, and what was assumed in either."""
    for trace, name in ((a, names[0]), (b, names[1])):
        if trace.baseline_allocated_bytes or trace.metadata.get("complete") is False:
            yield f"{name} was recorded from the middle of a run: what was there before has no line"
        yield from _ranges(trace, name)
    if _has_allocations(a) != _has_allocations(b):
        yield "one record has allocations and the other has not: only totals can be compared"
    devices = [trace.device.name for trace in (a, b) if trace.device is not None]
    # a snapshot knows its card by number only: cuda:0
    if len(set(devices)) == 2 and not any(name.startswith("cuda:") for name in devices):
        yield f"the devices differ: {devices[0]} and {devices[1]}"


def _ranges(trace: Trace, name: str) -> Iterable[str]:
    low = sum(item.low_bytes for item in trace.assumptions)
    high = sum(item.high_bytes for item in trace.assumptions)
    if not (low or high):
        return
    named = [item.what for item in trace.assumptions if item.low_bytes or item.high_bytes]
    span = f"{format_bytes(low, sign=True)} to {format_bytes(high, sign=True)}"
    yield f"{name} assumes: {'; '.join(named)} (may move its peak by {span})"
