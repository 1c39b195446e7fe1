"""Curves over time as `page.js` draws them: whole bytes, places along the axis, marks and calls.

`Spec` is the contract between the two.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Sequence
from itertools import groupby
from typing import NotRequired, TypeAlias, TypedDict, TypeVar

from memlens.explanation.curves import Curve, total
from memlens.explanation.over_time import (
    EVENTS,
    SECONDS,
    STACK,
    Axis,
    Series,
    build_series,
    phases_of,
    pick,
    place_of,
    places_of,
)
from memlens.model import Alloc, Free, Span, Trace
from memlens.units import GIB, MIB, format_bytes, format_count, short_path

K = TypeVar("K", bound=Hashable)

POINTS = 8000  # some three a pixel of a wide screen, and as many again for zooming in
MARKS = 200  # lines; more would hide the curve
PROCESSES = 12  # areas; the rest are one
FUNCTIONS = 15  # rows of calls


Packed: TypeAlias = list[int]  # numbers as `packed` writes them


def packed(values: Iterable[int]) -> Packed:
    """Whole numbers in little room: pairs of a difference to the number before, and how often it comes.

    >>> packed([0, 1, 2, 3, 10, 10])
    [0, 1, 1, 3, 7, 1, 0, 1]
    """
    pairs: list[int] = []
    before = 0
    for value in values:
        if pairs and pairs[-2] == value - before:
            pairs[-1] += 1
        else:
            pairs += [value - before, 1]
        before = value
    return pairs


class Line(TypedDict):
    """A curve, or an area of the stack: bytes at each of the chart's places. `colour` is one of page.css."""

    name: str
    colour: str
    dash: NotRequired[bool]
    y: Packed


# A stretch of the axis with a name: a phase of training.
Band = TypedDict("Band", {"from": int, "to": int, "text": str})


class Note(TypedDict):
    """A vertical line at a place along the axis, with words."""

    x: int
    text: str


class Rule(TypedDict):
    """A horizontal line at a number of bytes, with words."""

    y: int
    text: str


class Call(TypedDict):
    """One function's row below the curve: (start, end, how memory changed, in words) of each call."""

    name: str
    spans: list[tuple[int, int, str]]


class Holdings(TypedDict):
    """Every allocation, so that the page can tell who held memory at any moment.

    The packed lists have a number for each: the event that made it, the one that freed it (or that comes
    after the last), its bytes, and its places in `categories`, `modules` and `lines`. `colours` are the
    categories'. A module is None outside every module. `baseline` are bytes that were there before.
    """

    baseline: int
    categories: list[str]
    colours: list[str]
    modules: list[str | None]
    lines: list[str]
    start: Packed
    end: Packed
    bytes: Packed
    category: Packed
    module: Packed
    line: Packed


class Spec(TypedDict):
    """A chart, whole: what `page.js` gets as JSON. A part that is absent is not drawn.

    `x` are the places of all curves along the axis; `per_unit` of them make one unit of `axis`. Sizes are
    drawn divided by `factor`, which makes them the `unit`.
    """

    x: Packed
    per_unit: int
    axis: str
    factor: int
    unit: str
    areas: list[Line]
    lines: list[Line]
    bands: NotRequired[list[Band]]
    phases: NotRequired[list[tuple[str, int]]]  # of the places: a phase, and how many follow each other in it
    events: NotRequired[Packed]  # the number of the event at each place
    holdings: NotRequired[Holdings]
    moment: NotRequired[Note | None]
    rules: NotRequired[list[Rule]]
    marks: NotRequired[list[Note]]
    calls: NotRequired[list[Call]]


def allocations(
    trace: Trace, index: int, name: str = "peak", room_bytes: int | None = None
) -> tuple[Spec, str]:
    """Allocated by category with reserved above it, and a note on what was left out.

    Event number `index` is marked with its name, and so is `room_bytes`, what the card has for all this.
    """
    series, places = build_series(trace, POINTS), places_of(trace)
    areas: list[Line] = [
        {"name": category.label, "colour": category.value, "y": packed(series.categories[category])}
        for category in STACK
        if category in series.categories
    ]
    lines: list[Line] = [{"name": "allocated", "colour": "ink", "y": packed(series.allocated)}]
    if series.reserved:
        lines.append({"name": "reserved", "colour": "ink", "dash": True, "y": packed(series.reserved)})
    top = max([*series.reserved, *series.allocated], default=0)
    spec = _curves(series.axis, series.places, top, areas, lines)
    spec["bands"] = bands(trace, places)
    spec["phases"] = phase_names(trace, series.indices)
    spec["events"] = packed(series.indices)
    spec["holdings"] = holdings(trace)
    spec["moment"] = {"x": places[index], "text": name} if 0 <= index < len(places) else None
    spec["rules"] = []
    if room_bytes is not None and 0 < room_bytes < 2 * top:
        spec["rules"].append({"y": room_bytes, "text": "the card, less the CUDA context"})
    return spec, describe_thinning(series)


def describe_thinning(series: Series) -> str:
    """A sentence on what the curve leaves out; empty where it has every event."""
    if not series.is_thinned:
        return ""
    kinds, exact = ("allocated and reserved", "Both peaks are") if series.reserved else ("it", "The peak is")
    return (
        f"{format_count(len(series.indices))} of {format_count(series.events)} events are drawn: in each "
        f"span the first and last, and the highest and lowest of {kinds}. {exact} exact."
    )


def _curves(axis: Axis, places: Sequence[int], top_bytes: int, areas: list[Line], lines: list[Line]) -> Spec:
    factor, unit = (GIB, "GiB") if top_bytes >= GIB else (MIB, "MiB")
    return {
        "x": packed(places),
        "per_unit": axis.per_unit,
        "axis": "events" if axis is EVENTS else "seconds",
        "factor": factor,
        "unit": unit,
        "areas": areas,
        "lines": lines,
    }


def phase_names(trace: Trace, indices: Sequence[int]) -> list[tuple[str, int]]:
    """The phases of the events in `indices`, and how many fall in each; nothing at all in a trace without."""
    phases = phases_of(trace)
    starts = [start for _, start, _ in phases]
    names = ["", *(mark.title for mark, _, _ in phases)]
    of_each = (names[bisect_right(starts, index)] for index in indices) if phases else iter(())
    return [(name, len(list(run))) for name, run in groupby(of_each)]


def holdings(trace: Trace) -> Holdings:
    """The allocations of a trace in the order of their events."""
    freed = {event.id: index for index, event in enumerate(trace.events) if isinstance(event, Free)}
    made = [(index, event) for index, event in enumerate(trace.events) if isinstance(event, Alloc)]
    categories = _numbered(event.category for _, event in made)
    modules = _numbered(event.site.module for _, event in made)
    lines = _numbered(event.site.where for _, event in made)
    return {
        "baseline": trace.baseline_allocated_bytes,
        "categories": [category.label for category in categories],
        "colours": [category.value for category in categories],
        "modules": list(modules),
        "lines": [short_path(line, from_here=False) for line in lines],
        "start": packed(index for index, _ in made),
        "end": packed(freed.get(event.id, len(trace.events)) for _, event in made),
        "bytes": packed(event.bytes for _, event in made),
        "category": packed(categories[event.category] for _, event in made),
        "module": packed(modules[event.site.module] for _, event in made),
        "line": packed(lines[event.site.where] for _, event in made),
    }


def _numbered(values: Iterable[K]) -> dict[K, int]:
    """Each value once, with its number."""
    return {value: number for number, value in enumerate(dict.fromkeys(values))}


def bands(trace: Trace, places: Sequence[int]) -> list[Band]:
    """The phases as stretches of the axis; of the marks of many steps only the first ones."""
    stretches: list[Band] = []
    for mark, _, end in phases_of(trace)[:MARKS]:
        last = places[min(end, len(places) - 1)]
        stretches.append({"from": place_of(mark, places), "to": last, "text": mark.short_title})
    return stretches


def processes(trace: Trace, curves: list[Curve], spans: Sequence[Span] = ()) -> tuple[Spec, str]:
    """Every process's memory, stacked, with the trace's marks; calls below it."""
    whole = total(curves)
    origin = min(curve.started_us for curve in curves)
    chosen = _moments(curves, whole)
    ranked = sorted(curves[1:], key=lambda curve: -curve.peak_bytes)
    shown = [curves[0], *ranked[: PROCESSES - 1]]
    areas: list[Line] = [
        {
            "name": name_of(curve),
            "colour": f"p{number % 8}",
            "y": packed(map(curve.bytes_at, chosen)),
        }
        for number, curve in enumerate(shown)
    ]
    if rest := ranked[PROCESSES - 1 :]:
        sums = [sum(curve.bytes_at(time) for curve in rest) for time in chosen]
        name = f"{format_count(len(rest))} more processes"
        areas.append({"name": name, "colour": "unknown", "y": packed(sums)})
    lines: list[Line] = []
    if len(curves) > 1:
        lines.append({"name": "all together", "colour": "ink", "y": packed(map(whole.bytes_at, chosen))})
    spec = _curves(SECONDS, [time - origin for time in chosen], whole.peak_bytes, areas, lines)
    spec["marks"] = [
        {"x": mark.time_us - origin, "text": mark.name} for mark in trace.marks[:MARKS] if mark.time_us
    ]
    spec["calls"] = calls(spans, origin)
    if len(chosen) >= len(whole.times_us):
        return spec, ""
    return spec, (
        f"{format_count(len(chosen))} of {format_count(len(whole.times_us))} moments are drawn: the highest "
        "and lowest of each span of time. The peaks are exact."
    )


def _moments(curves: list[Curve], whole: Curve) -> list[int]:
    """The times to draw: all, or those that show the sum's peaks and each process's own; and the end."""
    times = whole.times_us
    kept = set(times)
    if len(times) > POINTS:
        peaks = {curve.sampled_peak[1] for curve in curves if curve.bytes}
        kept = {times[number] for number in pick(times, [whole.bytes], POINTS)}
        kept |= {time for time in peaks if times[0] <= time <= times[-1]}
    return sorted(kept | {max(whole.ended_us, times[-1])})


def name_of(curve: Curve) -> str:
    return f"{curve.name} ({curve.pid})" if curve.pid else curve.name


def calls(spans: Sequence[Span], origin: int, most: int = 500) -> list[Call]:
    """A row for each function, the longest first; of its calls the first `most` are drawn."""
    by_name: dict[str, list[Span]] = {}
    for span in sorted(spans, key=lambda span: span.started_us):
        by_name.setdefault(span.name, []).append(span)
    ranked = sorted(by_name.items(), key=lambda item: -sum(s.ended_us - s.started_us for s in item[1]))
    return [
        {
            "name": name,
            "spans": [
                (
                    span.started_us - origin,
                    span.ended_us - origin,
                    format_bytes(span.end_bytes - span.start_bytes, sign=True),
                )
                for span in held[:most]
            ],
        }
        for name, held in ranked[:FUNCTIONS]
    ]
