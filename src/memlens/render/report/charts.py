"""Curves over time as `page.js` draws them: whole bytes, places along the axis, marks and calls."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from memlens.explanation.curves import Curve, total
from memlens.explanation.over_time import (
    EVENTS,
    STACK,
    Axis,
    Course,
    course,
    named,
    phases_of,
    pick,
    place_of,
    places_of,
)
from memlens.model import Span, Trace
from memlens.units import GIB, MIB, format_bytes, format_count

POINTS = 8000  # some three a pixel of a wide screen, and as many again for zooming in
MARKS = 200  # lines; more would hide the curve
PROCESSES = 12  # areas; the rest are one
FUNCTIONS = 15  # rows of calls

Spec = dict[str, Any]


def allocations(
    trace: Trace, index: int, name: str = "peak", room_bytes: int | None = None
) -> tuple[Spec, str]:
    """Allocated by category with reserved above it, and a note on what was left out.

    Event number `index` is marked with its name, and so is `room_bytes`, what the card has for all this.
    """
    drawn, places = course(trace, POINTS), places_of(trace)
    areas = [
        {"name": category.label, "colour": category.value, "y": list(drawn.categories[category])}
        for category in STACK
        if category in drawn.categories
    ]
    lines = [{"name": "allocated", "colour": "ink", "y": list(drawn.allocated)}]
    if drawn.reserved:
        lines.append({"name": "reserved", "colour": "ink", "dash": "dot", "y": list(drawn.reserved)})
    top = max([*drawn.reserved, *drawn.allocated], default=0)
    near = room_bytes is not None and 0 < room_bytes < 2 * top
    spec = _frame(drawn.axis, drawn.places, top) | {
        "areas": areas,
        "lines": lines,
        "bands": bands(trace, places),
        "phases": phase_names(trace, drawn.indices),
        "moment": {"x": places[index], "text": name} if 0 <= index < len(places) else None,
        "rules": [{"y": room_bytes, "text": "the card, less the CUDA context"}] if near else [],
    }
    return spec, thinned(drawn)


def thinned(drawn: Course) -> str:
    """What the curve leaves out; nothing where it has every event."""
    if not drawn.thinned:
        return ""
    kinds, exact = ("allocated and reserved", "Both peaks are") if drawn.reserved else ("it", "The peak is")
    return (
        f"{format_count(len(drawn.indices))} of {format_count(drawn.events)} events are drawn: in each span "
        f"the first and last, and the highest and lowest of {kinds}. {exact} exact."
    )


def _frame(axis: Axis, places: Sequence[int], top: int) -> Spec:
    factor, unit = (GIB, "GiB") if top >= GIB else (MIB, "MiB")
    return {
        "x": list(places),
        "per_unit": axis.per_unit,
        "axis": "events" if axis is EVENTS else "seconds",
        "factor": factor,
        "unit": unit,
    }


def phase_names(trace: Trace, indices: Sequence[int]) -> list[str]:
    """The phase of each event in `indices`; nothing at all in a trace without."""
    found = phases_of(trace)
    starts = [start for _, start, _ in found]
    names = ["", *(named(mark) for mark, _, _ in found)]
    return [names[bisect_right(starts, index)] for index in indices] if found else []


def bands(trace: Trace, places: Sequence[int]) -> list[Spec]:
    """The phases as stretches of the axis; of the marks of many steps only the first ones."""
    found = []
    for mark, _, end in phases_of(trace)[:MARKS]:
        last = places[min(end, len(places) - 1)]
        found.append(
            {"from": place_of(mark, places), "to": last, "text": f"{mark.name} {mark.step or ''}".strip()}
        )
    return found


def processes(trace: Trace, found: list[Curve], spans: Sequence[Span] = ()) -> tuple[Spec, str]:
    """Every process's memory, stacked, with the trace's marks; calls below it."""
    whole = total(found)
    origin = min(curve.started_us for curve in found)
    chosen = _moments(found, whole)
    ranked = sorted(found[1:], key=lambda curve: -curve.peak_bytes)
    shown = [found[0], *ranked[: PROCESSES - 1]]
    areas = [
        {"name": name_of(curve), "colour": f"p{number % 8}", "y": [curve.at(time) for time in chosen]}
        for number, curve in enumerate(shown)
    ]
    if rest := ranked[PROCESSES - 1 :]:
        sums = [sum(curve.at(time) for curve in rest) for time in chosen]
        areas.append({"name": f"{format_count(len(rest))} more processes", "colour": "unknown", "y": sums})
    spec = _frame(Axis("s", 1_000_000), [time - origin for time in chosen], whole.peak_bytes) | {
        "areas": areas,
        "lines": [{"name": "all together", "colour": "ink", "y": [whole.at(time) for time in chosen]}]
        if len(found) > 1
        else [],
        "marks": [
            {"x": mark.time_us - origin, "text": mark.name} for mark in trace.marks[:MARKS] if mark.time_us
        ],
        "calls": calls(spans, origin),
    }
    if len(chosen) >= len(whole.times_us):
        return spec, ""
    return spec, (
        f"{format_count(len(chosen))} of {format_count(len(whole.times_us))} moments are drawn: the highest "
        "and lowest of each span of time. The peaks are exact."
    )


def _moments(found: list[Curve], whole: Curve) -> list[int]:
    """The times to draw: all, or those that show the sum's peaks and each process's own; and the end."""
    times = whole.times_us
    kept = set(times)
    if len(times) > POINTS:
        peaks = {curve.sampled_peak[1] for curve in found if curve.bytes}
        kept = {times[number] for number in pick(times, [whole.bytes], POINTS)}
        kept |= {time for time in peaks if times[0] <= time <= times[-1]}
    return sorted(kept | {max(whole.ended_us, times[-1])})


def name_of(curve: Curve) -> str:
    return f"{curve.name} ({curve.pid})" if curve.pid else curve.name


def calls(spans: Sequence[Span], origin: int, most: int = 500) -> list[Spec]:
    """A row for each function, the longest first; of its calls the first `most` are drawn."""
    by_name: dict[str, list[Span]] = {}
    for span in sorted(spans, key=lambda span: span.started_us):
        by_name.setdefault(span.name, []).append(span)
    ranked = sorted(by_name.items(), key=lambda item: -sum(s.ended_us - s.started_us for s in item[1]))
    return [
        {
            "name": name,
            "spans": [
                [
                    span.started_us - origin,
                    span.ended_us - origin,
                    format_bytes(span.end_bytes - span.start_bytes, sign=True),
                ]
                for span in held[:most]
            ],
        }
        for name, held in ranked[:FUNCTIONS]
    ]
