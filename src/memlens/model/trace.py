"""The one record. Many producers make it (predict, measure, import), many consumers draw it.

>>> from memlens.model import Alloc, Free, Trace
>>> trace = Trace(origin="predicted", events=[Alloc(1, 512), Alloc(2, 1024), Free(1)])
>>> trace.check()
>>> trace.timeline().peak_allocated_bytes
1536
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

from memlens.answers import Answer
from memlens.model.assumption import Assumption
from memlens.model.breakdown import Breakdown, breakdown_at
from memlens.model.events import Alloc, Event, Free, Mark, Sample, SegmentAlloc, SegmentFree, Span
from memlens.model.provenance import Provenance
from memlens.model.timeline import Timeline, build_timeline
from memlens.units import format_bytes

Origin = Literal["predicted", "measured", "imported"]


@dataclass(frozen=True, slots=True)
class Device:
    """The card a trace speaks of. `context_bytes` is (low, expected, high), outside the allocator.

    `context_note` says where it was read, if on this very card.
    """

    name: str
    memory_bytes: int | None = None
    compute_capability: tuple[int, int] | None = None
    context_bytes: tuple[int, int, int] = (0, 0, 0)
    context_note: str = ""


@dataclass(slots=True)
class Process:
    """A process seen while measuring; `ended_us` is None while it lived.

    `peak_rss_bytes` is the system's own high-water mark, which sees what falls between two samples; None
    where the system keeps none. `exit_code` is negative for a signal; None for processes not our child.
    """

    pid: int
    name: str
    parent: int | None = None
    started_us: int = 0
    ended_us: int | None = None
    peak_rss_bytes: int | None = None
    exit_code: int | None = None


@dataclass(repr=False)
class Trace(Answer):
    """Events in order, the marks between them, and what was assumed.

    `baseline_allocated_bytes` and `baseline_reserved_bytes` are what was there before the first event, in
    recordings that start in the middle of a run.
    """

    origin: Origin
    events: list[Event] = field(default_factory=list)
    device: Device | None = None
    marks: list[Mark] = field(default_factory=list)
    metadata: Provenance = field(default_factory=Provenance)
    assumptions: list[Assumption] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    baseline_allocated_bytes: int = 0
    baseline_reserved_bytes: int = 0

    def headline(self) -> str:
        """What kind of record it is, how long, and its highest."""
        about = [self.origin, f"{len(self.events):,} events"]
        if any(isinstance(event, Alloc) for event in self.events):
            about.append(f"at most {format_bytes(self.timeline().peak_allocated_bytes)} allocated")
        sizes = [event.rss_bytes or 0 for event in self.events if isinstance(event, Sample)]
        if sizes:
            about.append(f"one process held at most {format_bytes(max(sizes))}")
        return ", ".join(about)

    def to_rows(self) -> list[dict[str, Any]]:
        """A row for each allocation (`freed_at` is None where it never was), or for each sample of a run."""
        freed = {event.id: index for index, event in enumerate(self.events) if isinstance(event, Free)}
        rows = [
            {"allocated_at": index, "freed_at": freed.get(event.id), **allocation_row(event)}
            for index, event in enumerate(self.events)
            if isinstance(event, Alloc)
        ]
        return rows or [
            {name: getattr(event, name) for name in event.__slots__}
            for event in self.events
            if isinstance(event, Sample)
        ]

    def timeline(self) -> Timeline:
        """Allocated and reserved bytes after every event."""
        return build_timeline(self.events, self.baseline_allocated_bytes, self.baseline_reserved_bytes)

    def breakdown(self, index: int | None = None) -> Breakdown:
        """Who holds what after event number `index`; the peak of allocated memory if None."""
        moment = self.timeline().peak_index if index is None else index
        return breakdown_at(self.events, moment, self.baseline_allocated_bytes)

    def allocations(self) -> dict[int, Alloc]:
        """Every allocation by its id. Built at each call, since `events` may have grown since the last."""
        return {event.id: event for event in self.events if isinstance(event, Alloc)}

    def phases(self) -> Iterator[tuple[Mark, int, int]]:
        """Each mark with the half-open range of events it holds for; nothing in a trace without marks."""
        if not self.marks:
            return
        ends = [mark.index for mark in self.marks[1:]] + [len(self.events)]
        for mark, end in zip(self.marks, ends, strict=True):
            yield mark, mark.index, end

    def mark_at(self, index: int) -> Mark | None:
        """The mark that holds at event number `index`."""
        current = None
        for mark in self.marks:
            if mark.index > index:
                break
            current = mark
        return current

    def check(self) -> None:
        """Prove that sums close; raises AssertionError with the event that breaks them.

        Every free has its allocation, ids are unique, marks are in order, allocated never exceeds reserved
        where segments are known, placed blocks lie inside one segment and never overlap in number of bytes,
        and the categories at the peak add up to what is allocated there.
        """
        check_events(self)
        peak = self.breakdown()
        held = sum(peak.by_category().values())
        if held != peak.allocated_bytes:
            raise AssertionError(
                f"categories hold {held} bytes at the peak, allocated says {peak.allocated_bytes}"
            )


def allocation_row(event: Alloc) -> dict[str, Any]:
    """One allocation as a row of a table."""
    site = event.site
    return {
        "bytes": event.bytes,
        "requested_bytes": event.requested,
        "category": event.category.value,
        "file": site.file,
        "line": site.line,
        "module": site.module,
        "operator": site.operator,
        "backward": site.backward,
        "stream": event.stream,
    }


def check_events(trace: Trace) -> None:
    """The part of `Trace.check` that walks the events once."""
    live: dict[int, int] = {}
    segments: dict[int, int] = {}
    seen: set[int] = set()
    reserved, allocated = trace.baseline_reserved_bytes, trace.baseline_allocated_bytes
    has_segments = any(isinstance(event, SegmentAlloc) for event in trace.events)
    for number, event in enumerate(trace.events):
        match event:
            case Alloc():
                if event.id in seen:
                    raise AssertionError(f"event {number}: allocation id {event.id} was used before")
                if event.bytes < event.requested or event.bytes < 0:
                    raise AssertionError(
                        f"event {number}: {event.bytes} bytes for a request of {event.requested}"
                    )
                seen.add(event.id)
                live[event.id] = event.bytes
                allocated += event.bytes
            case Free():
                if event.id not in live:
                    raise AssertionError(f"event {number}: free of {event.id}, which is not allocated")
                allocated -= live.pop(event.id)
            case SegmentAlloc():
                segments[event.address] = event.bytes
                reserved += event.bytes
            case SegmentFree():
                reserved -= event.bytes
            case _:
                continue
        if has_segments and allocated > reserved and not isinstance(event, SegmentAlloc):
            raise AssertionError(f"event {number}: {allocated} bytes allocated, only {reserved} reserved")
    indices = [mark.index for mark in trace.marks]
    if indices != sorted(indices) or any(index > len(trace.events) for index in indices):
        raise AssertionError(f"marks are out of order: {indices} over {len(trace.events)} events")
