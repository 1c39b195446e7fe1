"""Allocations as a picture: what memory is for, allocated and reserved, over time or over events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memlens.errors import UsageError
from memlens.explanation.over_time import (
    ALLOCATED,
    EVENTS,
    SECONDS,
    STACK,
    WORDS,
    Series,
    axis_of,
    build_series,
    curves_to_draw,
    first_moment,
    phases_of,
    place_of,
    places_of,
)
from memlens.model import Category, Trace
from memlens.render.plot_axes import COLOURS, frame, slope_line
from memlens.render.timeline import subject
from memlens.units import MIB, format_bytes

CATEGORY_COLOURS = {
    Category.PARAMETER: "#4477aa",
    Category.BUFFER: "#66a3c4",
    Category.GRADIENT: "#aa4499",
    Category.OPTIMIZER_STATE: "#ddaa33",
    Category.ACTIVATION: "#3a9d5d",
    Category.INPUT: "#5566cc",
    Category.TEMPORARY: "#ee7788",
    Category.WORKSPACE: "#44aaaa",
    Category.COMMUNICATION: "#999933",
    Category.UNKNOWN: "#a3a9b4",
}
POINTS = 4000  # three for each pixel of the picture
PHASES_SHOWN = 16  # names that fit side by side


def allocations(
    axes: Any,
    records: Sequence[tuple[str, Trace]],
    seconds: tuple[float, float] | None,
    slope: bool,
    title: str | None,
) -> None:
    """Allocated and reserved memory of each record; of a single one also what it is for, stacked."""
    units = {axis_of(trace) for _, trace in records}
    if len(units) > 1:
        raise UsageError(
            "some of these records have times and others, predictions, an order only", hint="draw them apart"
        )
    (axis,) = units
    if slope and axis is EVENTS:
        raise UsageError("a slope is growth a second, and a prediction has no times", hint="leave -s out")
    for number, (name, trace) in enumerate(records):
        places = places_of(trace)
        origin = places[min(first_moment(trace), len(places) - 1)] if places else 0
        window = None
        if seconds is not None:
            window = (origin + round(seconds[0] * axis.per_unit), origin + round(seconds[1] * axis.per_unit))
        series = build_series(trace, POINTS, window)
        xs = [(place - origin) / axis.per_unit for place in series.places]
        single = len(records) == 1
        colour = "black" if single else COLOURS[number % len(COLOURS)]
        if single:
            _categories(axes, series, xs)
            _phases(axes, trace, xs, places, origin)
            title = title or subject(trace)
        for kind, sizes, dash in (("allocated", series.allocated, "-"), ("reserved", series.reserved, ":")):
            if sizes:
                whose = kind if single else f"{name}, {kind}"
                label = f"{whose} (peak {format_bytes(max(sizes))})"
                style = {"color": colour, "linestyle": dash, "linewidth": 1.2, "drawstyle": "steps-post"}
                axes.plot(xs, [size / MIB for size in sizes], label=label, **style)
        if slope:
            slope_line(axes, curves_to_draw(trace, ALLOCATED)[0], origin, seconds)
    frame(axes, axes, seconds, "seconds" if axis is SECONDS else "events: allocations and frees, in order")
    axes.set_title(title or "", loc="left", fontsize=11, pad=18)  # above the names of phases
    axes.set_ylabel(f"{WORDS[ALLOCATED]}, MiB")


def _categories(axes: Any, series: Series, xs: list[float]) -> None:
    """Stacked: what lives longest lowest."""
    kinds = [category for category in STACK if category in series.categories]
    if kinds and xs:
        sizes = [[size / MIB for size in series.categories[category]] for category in kinds]
        colours = [CATEGORY_COLOURS[category] for category in kinds]
        labels = [category.label for category in kinds]
        axes.stackplot(xs, sizes, labels=labels, colors=colours, step="post", linewidth=0)


def _phases(axes: Any, trace: Trace, xs: list[float], places: Sequence[int], origin: int) -> None:
    """A line where each phase begins, and the names of those that have room for it."""
    axis = axis_of(trace)
    room = (xs[-1] - xs[0]) / PHASES_SHOWN if xs else 0
    for mark, _, end in phases_of(trace):
        x = (place_of(mark, places) - origin) / axis.per_unit
        length = (places[min(end, len(places) - 1)] - origin) / axis.per_unit - x
        if not xs or not xs[0] <= x <= xs[-1]:
            continue
        axes.axvline(x, color="#555555", linewidth=0.6, linestyle=":")
        if length >= room:
            style = {"fontsize": 8, "color": "#555555"}
            axes.annotate(
                mark.short_title, (x, 1), (2, 3), ("data", "axes fraction"), "offset points", **style
            )
