"""`memlens.explain()`: where every byte of a record went."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from memlens.allocator import from_snapshot, verify
from memlens.allocator.replay import Verification
from memlens.answers import Answer
from memlens.errors import UsageError
from memlens.explanation.address_map import layout
from memlens.explanation.fragmentation import PoolUse, pool_use
from memlens.explanation.growth import Growth, growth
from memlens.explanation.held import held_by_name, largest_first
from memlens.explanation.modules import ModuleUse, module_uses
from memlens.explanation.oom_cause import Cause, causes, trace_before
from memlens.explanation.prediction import Prediction, peak_index
from memlens.explanation.prediction_record import recall
from memlens.model import Alloc, Breakdown, OutOfMemory, Timeline, Trace
from memlens.model.trace import allocation_row
from memlens.records import load
from memlens.records.torch_snapshot import load_snapshot
from memlens.units import format_bytes

__all__ = ["Explanation", "LineUse", "Verification", "as_trace", "explain", "explain_trace", "lines"]

SCHEMA = "memlens.snapshot/1"
TOP = 10


class LineUse(NamedTuple):
    """What one source line holds."""

    line: str
    bytes: int
    allocations: int


@dataclass(frozen=True, repr=False)
class Explanation(Answer):
    """Who holds memory at one moment of a record, what grows, what is reserved and unused, why it ran out.

    `index` is the number of the event that is looked at. `checked` is the recording's replay by the rules of
    the allocator; None where it has no settings to replay it with. `prediction` is the one that the trace was
    made for, if any. What is not asked for is not computed.
    """

    trace: Trace
    index: int
    is_peak: bool = True
    checked: Verification | None = field(default=None, repr=False)
    prediction: Prediction | None = field(default=None, repr=False)

    @cached_property
    def timeline(self) -> Timeline:
        """Allocated and reserved bytes after every event."""
        return self.trace.timeline()

    @cached_property
    def held(self) -> Breakdown:
        """The allocations that are alive at the moment."""
        return self.trace.breakdown(self.index)

    @cached_property
    def lines(self) -> tuple[LineUse, ...]:
        """Who holds memory at the moment, by source line, largest first."""
        return lines(self.trace, self.held)

    @cached_property
    def modules(self) -> tuple[ModuleUse, ...]:
        """The same by module; where no module was recorded, inferred from the stacks."""
        return tuple(module_uses(self.held))

    @cached_property
    def growth(self) -> Growth | None:
        """What grows from step to step; None where nothing comes often enough to tell."""
        return growth(self.trace)

    @cached_property
    def pools(self) -> tuple[PoolUse, ...]:
        """What the allocator holds unused: at the end of a recording, or at the moment asked for."""
        if self.checked is None:
            return tuple(pool_use(layout(self.trace, self.index)))
        if self.is_peak:
            return tuple(pool_use(self.checked.segments))
        return tuple(pool_use(verify(trace_before(self.trace, self.index + 1), self._config).segments))

    @cached_property
    def causes(self) -> tuple[Cause, ...]:
        """Why the last requests that failed did."""
        settings = self.trace.metadata.get("allocator_settings")
        if settings is None or not any(isinstance(event, OutOfMemory) for event in self.trace.events):
            return ()
        return tuple(causes(self.trace, self._config))

    @property
    def first_event(self) -> int:
        """The number of the first recorded event; those before it represent what was there already."""
        start: int = self.trace.metadata.get("baseline_events", 0)
        return start

    @property
    def _config(self) -> Any:
        return from_snapshot(self.trace.metadata["allocator_settings"])

    def headline(self) -> str:
        """How much is held at the moment, and by whom most."""
        top = f"; most by {self.lines[0].line}" if self.lines else ""
        return f"{format_bytes(self.held.allocated_bytes)} allocated at event {self.index}{top}"

    def to_rows(self) -> list[dict[str, Any]]:
        """A row for each allocation that is alive at the moment, largest first."""
        alive = sorted(self.held.live, key=lambda event: -event.bytes)
        return [allocation_row(event) for event in alive]

    def to_dict(self, *, replay: bool = False, top: int = TOP) -> dict[str, Any]:
        """`memlens snapshot --json`, schema memlens.snapshot/1.

        `peak.allocated_bytes` is what the recording says, which knows only what was asked for;
        `peak.block_bytes` counts each block at the size that the replay found. `replay` adds the replay's
        own figures, `top` is the number of lines and modules.
        """
        metadata, timeline = self.trace.metadata, self.timeline
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "file": metadata.get("source", ""),
            "device": metadata.get("device"),
            "devices": metadata.get("devices", []),
            "complete": metadata.get("complete", True),
            "allocator_settings": metadata.get("allocator_settings"),
            "events": len(self.trace.events) - self.first_event,
            "start_allocated_bytes": timeline.allocated[self.first_event - 1] if self.first_event else 0,
            "peak": self._peak(),
            "end_allocated_bytes": timeline.allocated[-1] if timeline.allocated else 0,
            "reserved_bytes": timeline.reserved[-1] if timeline.reserved else 0,
            "at": self._moment(top),
            "marks": self._marks(),
            "growth": self.growth.to_dict() if self.growth is not None else None,
            "pools": [use.to_dict() for use in self.pools],
            "out_of_memory": [cause.to_dict(self.first_event) for cause in self.causes],
            "assumptions": [{"what": item.what, "why": item.why} for item in self.trace.assumptions],
        }
        if replay and self.checked is not None:
            document["replay"] = self.checked.to_dict()
        return document

    def _peak(self) -> dict[str, Any]:
        return {
            "allocated_bytes": self.timeline.peak_allocated_bytes,
            "block_bytes": self.block_bytes,
            "reserved_bytes": self.timeline.peak_reserved_bytes,
            "event": self.timeline.peak_index - self.first_event,
        }

    @cached_property
    def block_bytes(self) -> int:
        """Allocated bytes at the peak with every block at its full size, as far as a replay can tell."""
        timeline = self.timeline if self.checked is None else self.checked.trace.timeline()
        return timeline.peak_allocated_bytes

    def _moment(self, top: int) -> dict[str, Any]:
        events, index = self.trace.events, self.index
        return {
            "event": index - self.first_event,
            "time_us": events[index].time_us if 0 <= index < len(events) else 0,
            "allocated_bytes": self.held.allocated_bytes,
            "categories": {category.value: size for category, size in self.held.by_category().items()},
            "holders": [use._asdict() for use in self.lines[:top]],
            "modules": [use._asdict() for use in self.modules[:top]],
        }

    def _marks(self) -> list[dict[str, Any]]:
        marks = (
            self.trace.marks[2:] if self.first_event else self.trace.marks
        )  # not those of the start itself
        return [
            {
                "name": mark.name,
                "step": mark.step,
                "event": mark.index - self.first_event,
                "allocated_bytes": self.timeline.allocated[mark.index - 1] if mark.index else 0,
            }
            for mark in marks
        ]


def explain(record: Any, *, at: float | None = None, device: int | None = None) -> Explanation:
    """Where every byte of a record went: who holds it, what grows, what is unused, why it ran out.

    Args:
        record: a file that memlens reads (a torch snapshot, a .memlens record), a `Trace`, or what has one (a
            prediction, a simulation).
        at: the moment to look at, in seconds from the first recorded event; by default the peak.
        device: which card of a snapshot with several; by default the first that was recorded.

    Raises:
        RecordError: the file is of no known kind, or damaged.
        UsageError: something that is no record.

    Example:
        >>> from memlens.model import Alloc, Free, Site, Trace
        >>> trace = Trace("measured", [Alloc(1, 512, site=Site("train.py", 3)), Alloc(2, 1024), Free(1)])
        >>> explain(trace).lines
        (LineUse(line='no stack recorded', bytes=1024, allocations=1),
         LineUse(line='train.py:3', bytes=512, allocations=1))
    """
    trace, checked = _true_sizes(_read(record, device))
    return explain_trace(trace, None if at is None else _index_at(trace, at), checked)


def explain_trace(trace: Trace, index: int | None = None, checked: Verification | None = None) -> Explanation:
    """Look at a trace as it is: at event number `index`, else at the peak (of the process, if predicted)."""
    prediction = recall(trace)
    if index is not None:
        return Explanation(trace, index, False, checked, prediction)
    timeline = trace.timeline()
    peak = timeline.peak_index if prediction is None else peak_index(timeline)
    return Explanation(trace, peak, True, checked, prediction)


def lines(trace: Trace, held: Breakdown) -> tuple[LineUse, ...]:
    """Who holds memory, by source line, largest first; where no line is known, by operator."""
    start = trace.metadata.get("baseline_events", 0)

    def key(alloc: Alloc) -> str:
        operator = "" if alloc.id < start else alloc.site.operator or "no stack recorded"
        return alloc.site.where or operator

    return tuple(LineUse(line, *use) for line, use in largest_first(held_by_name(trace, held, key)))


def as_trace(record: Any) -> Trace:
    """The trace of a file, a trace, or anything that has one; every block at its true size where it is known.

    Raises RecordError for a file of no known kind, UsageError for what is no record.
    """
    return _true_sizes(_read(record))[0]


def _read(record: Any, device: int | None = None) -> Trace:
    if isinstance(record, Trace):
        return record
    if isinstance(record, str | os.PathLike):
        return load(Path(record)) if device is None else load_snapshot(Path(record), device)
    trace = getattr(record, "trace", None)
    if isinstance(trace, Trace):
        return trace
    raise UsageError(
        f"a {type(record).__name__} is no record of memory",
        hint="give a file's name, a Trace or a prediction",
    )


def _true_sizes(trace: Trace) -> tuple[Trace, Verification | None]:
    """A snapshot says what was asked for; where a replay agrees with it, the size of every block is known."""
    settings = trace.metadata.get("allocator_settings")
    if settings is None:
        return trace, None
    checked = verify(trace, from_snapshot(settings))
    return (checked.trace if checked.complete and checked.agrees else trace), checked


def _index_at(trace: Trace, seconds: float) -> int:
    """The number of the last event within `seconds` of the first recorded one; UsageError beyond the end."""
    ended = max((event.time_us for event in trace.events[-1:]), default=0) / 1e6
    if seconds > ended:
        raise UsageError(f"there is nothing at {seconds:g} s: the recording ends at {ended:.2f} s")
    last: int = trace.metadata.get("baseline_events", 0) - 1
    for number in range(last + 1, len(trace.events)):
        if trace.events[number].time_us > seconds * 1e6:
            break
        last = number
    return last
