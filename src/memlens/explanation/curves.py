"""Memory of processes over time: the curves that a sampled trace holds.

>>> from memlens.model import Process, Sample, Trace
>>> trace = Trace("measured", [Sample(0, 7, 100), Sample(0, 8, 50), Sample(10, 7, 120)])
>>> trace.processes = [Process(7, "train.py"), Process(8, "worker", parent=7, ended_us=5)]
>>> [(curve.name, curve.peak_bytes) for curve in curves(trace)]
[('train.py', 120), ('worker', 50)]
>>> total(curves(trace)).peak_bytes
150
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memlens.model.events import FIGURES, Sample

if TYPE_CHECKING:
    from memlens.model.trace import Process, Trace


def _longs() -> array[int]:
    return array("q")


@dataclass(slots=True)
class Curve:
    """One process's memory: `bytes[i]` at `times_us[i]`, held until the next point or until `ended_us`."""

    pid: int
    name: str
    parent: int | None = None
    started_us: int = 0
    ended_us: int = 0
    times_us: array[int] = field(default_factory=_longs)
    bytes: array[int] = field(default_factory=_longs)
    high_water_bytes: int | None = None  # the system's own mark for the whole life, if it keeps one
    was_found_gone: bool = False  # a tick that still saw others did not see it: it held nothing at its end

    @property
    def sampled_peak(self) -> tuple[int, int]:
        """(bytes, time) of the highest sample; (0, 0) without any."""
        if not self.bytes:
            return 0, 0
        top = max(self.bytes)
        return top, self.times_us[self.bytes.index(top)]

    @property
    def peak_bytes(self) -> int:
        """The highest that is known: the system's high-water mark where it is above every sample."""
        return max(self.sampled_peak[0], self.high_water_bytes or 0)

    def bytes_at(self, time_us: int) -> int:
        """Bytes held at a moment; 0 before the first point and after the end."""
        place = bisect_right(self.times_us, time_us) - 1
        return self.bytes[place] if place >= 0 and time_us + self.was_found_gone <= self.ended_us else 0

    def between(self, start_us: int, end_us: int) -> Curve:
        """The part of the curve in a window, both ends included; the high-water mark has no time: dropped."""
        low, high = bisect_left(self.times_us, start_us), bisect_right(self.times_us, end_us)
        return Curve(
            self.pid,
            self.name,
            self.parent,
            max(self.started_us, start_us),
            min(self.ended_us, end_us),
            self.times_us[low:high],
            self.bytes[low:high],
        )


def curves(trace: Trace, figure: str = "rss") -> list[Curve]:
    """One curve a process that has at least one reading of `figure`: the program first, then by start."""
    attribute = FIGURES[figure][0]
    lives: dict[int, list[Curve]] = {}
    for process in trace.processes:
        lives.setdefault(process.pid, []).append(_empty_curve(process, trace, figure))
    for event in trace.events:
        if not isinstance(event, Sample) or (size := getattr(event, attribute)) is None:
            continue
        candidates = lives.setdefault(event.pid, [])
        if not candidates:
            candidates.append(Curve(event.pid, f"process {event.pid}", started_us=event.time_us))
        # a pid can be used twice: the sample belongs to the last life that began before it
        curve = next((c for c in reversed(candidates) if c.started_us <= event.time_us), candidates[0])
        curve.times_us.append(event.time_us)
        curve.bytes.append(size)
        curve.ended_us = max(curve.ended_us, event.time_us)
    living = [curve for life in lives.values() for curve in life if curve.bytes]
    last = max((curve.ended_us for curve in living), default=0)
    for curve in living:
        curve.was_found_gone = curve.times_us[-1] < curve.ended_us < last
    living.sort(key=lambda curve: (curve.parent is not None, curve.started_us, curve.pid))
    return living


def _empty_curve(process: Process, trace: Trace, figure: str) -> Curve:
    marks = {
        "rss": process.peak_rss_bytes,
        "python": trace.metadata.get("python_peaks", {}).get(str(process.pid)),
    }
    return Curve(
        process.pid,
        process.name,
        process.parent,
        process.started_us,
        process.ended_us or 0,
        high_water_bytes=marks.get(figure),
    )


def unsampled_curves(trace: Trace) -> list[Curve]:
    """The program that ended before its first sample: a curve without a point, but with the system's mark."""
    return [_empty_curve(process, trace, "rss") for process in trace.processes[:1] if process.peak_rss_bytes]


def total(parts: list[Curve]) -> Curve:
    """The sum over processes at every moment; a process counts from its first sample to its end.

    Its peak is at least that of each of them, also where the system's mark tells one between two samples.

    RSS counts pages that processes share once for each of them, so that a sum over forked workers is too
    high; PSS does not.
    """
    steps = [
        (time_us, number, size)
        for number, part in enumerate(parts)
        for time_us, size in zip(part.times_us, part.bytes, strict=True)
    ]
    held = [0] * len(parts)
    whole = Curve(0, "all processes", None, *_extent(parts))
    whole.high_water_bytes = max((part.peak_bytes for part in parts), default=None)
    for number, part in enumerate(parts):
        # the tick that finds a process gone has no sample of it: from then on it holds nothing
        steps.append((part.ended_us + (not part.was_found_gone), number, 0))
    steps.sort()
    current = 0
    for place, (time_us, number, size) in enumerate(steps):
        current += size - held[number]
        held[number] = size
        if (place + 1 == len(steps) or steps[place + 1][0] != time_us) and time_us <= whole.ended_us:
            whole.times_us.append(time_us)
            whole.bytes.append(current)
    return whole


def _extent(parts: list[Curve]) -> tuple[int, int]:
    return min((p.started_us for p in parts), default=0), max((p.ended_us for p in parts), default=0)


def sampled_curves(trace: Trace, figure: str = "rss") -> list[Curve]:
    """The curves to draw: each process's, or their sum alone where the recording asked for that (-C)."""
    each = curves(trace, figure)
    if trace.metadata.get("include_children") and len(each) > 1:
        whole = total(each)
        whole.name = f"{each[0].name} and {len(each) - 1} children"
        return [whole]
    return each
