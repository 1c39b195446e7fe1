"""The course of runs as a picture: PNG, SVG or PDF through matplotlib, without a display."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memlens.errors import MemlensError, MissingExtra, UsageError
from memlens.explanation.curves import Curve, total
from memlens.explanation.over_time import (
    ALLOCATED,
    WORDS,
    curves_to_draw,
    holds_allocations,
)
from memlens.model import Span, Trace
from memlens.render.plot_allocations import allocations
from memlens.render.plot_axes import COLOURS, frame, slope_line
from memlens.units import MIB, format_bytes

FORMATS = (".png", ".svg", ".pdf")


def picture(records: Sequence[tuple[str, Trace]], **options: Any) -> Any:
    """A matplotlib figure of one or several records. Options as in `draw`."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise _missing(error) from error
    figure = Figure(figsize=(12.6, 6.0), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    draw(figure, records, **options)
    return figure


def save(records: Sequence[tuple[str, Trace]], path: Path, **options: Any) -> None:
    """Write a picture of one or several records, in the format of the extension. Options as in `draw`."""
    if path.suffix.lower() not in FORMATS:
        raise UsageError(
            f"cannot write a picture as {path.name!r}", hint=f"use one of the endings {', '.join(FORMATS)}"
        )
    figure = picture(records, **options)
    try:
        figure.savefig(path)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from error


def show(records: Sequence[tuple[str, Trace]], backend: str, **options: Any) -> None:
    """Open a window, with one of matplotlib's interactive backends."""
    try:
        import matplotlib

        matplotlib.use(backend)
        from matplotlib import pyplot
    except ImportError as error:
        raise _missing(error) from error
    except ValueError as error:
        raise UsageError(f"matplotlib has no backend {backend!r}", hint=str(error)) from error
    draw(pyplot.figure(figsize=(12.6, 6.0), layout="constrained"), records, **options)
    pyplot.show()


def _missing(error: ImportError) -> MemlensError:
    """The error where matplotlib is not installed; a broken one gives its own message."""
    if isinstance(error, ModuleNotFoundError) and error.name == "matplotlib":
        return MissingExtra("matplotlib", "plot", "a picture")
    return MemlensError(f"matplotlib is installed, but fails: {error}", hint="reinstall matplotlib")


def draw(
    figure: Any,
    records: Sequence[tuple[str, Trace]],
    *,
    kind: str = "rss",
    seconds: tuple[float, float] | None = None,
    functions: bool = True,
    flame: bool = False,
    slope: bool = False,
    title: str | None = None,
) -> None:
    """Draw on a matplotlib figure: every record from its own start, in seconds and MiB."""
    for name, trace in records:
        if not curves_to_draw(trace, kind):
            hint = "--figure allocated" if holds_allocations(trace) else "--figure rss"
            raise UsageError(f"{name} holds no {WORDS[kind]}", hint=hint)
    if kind == ALLOCATED:
        allocations(figure.subplots(), records, seconds, slope, title)
        return
    spans = [span for _, trace in records for span in trace.spans] if flame and functions else []
    if spans:
        axes, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    else:
        axes, below = figure.subplots(), None
    for number, (name, trace) in enumerate(records):
        curves = curves_to_draw(trace, kind)
        origin = min(curve.started_us for curve in curves)
        label = name if len(records) > 1 else ""
        _curves(axes, curves, origin, number, label)
        _marks(axes, trace, origin)
        if slope:
            slope_line(axes, curves[0], origin, seconds)
        if below is not None:
            _flames(below, trace.spans, origin, number)
        elif functions:
            _brackets(axes, trace.spans, curves, origin)
    if len(records) == 1:
        _peak(axes, curves_to_draw(records[0][1], kind), seconds)
        title = title or str(records[0][1].metadata.get("command", ""))
    frame(axes, below or axes, seconds)
    axes.set_title(title or "", loc="left", fontsize=11)
    axes.set_ylabel(f"{WORDS[kind]}, MiB")


def _points(curve: Curve, origin: int) -> tuple[list[float], list[float]]:
    """Seconds and MiB; the last value is held until the process's end."""
    times = [(time_us - origin) / 1e6 for time_us in [*curve.times_us, curve.ended_us]]
    return times, [size / MIB for size in [*curve.bytes, *curve.bytes[-1:]]]


def _curves(axes: Any, curves: list[Curve], origin: int, number: int, label: str) -> None:
    program, *children = curves
    colour = "black" if not label else COLOURS[number % len(COLOURS)]
    text = label or f"{program.name} (peak {format_bytes(program.peak_bytes)})"
    axes.plot(*_points(program, origin), color=colour, linewidth=1.8, label=text)
    for place, child in enumerate(children):
        shade = colour if label else COLOURS[place % len(COLOURS)]
        row = None if label else f"{child.name} {child.pid} (peak {format_bytes(child.peak_bytes)})"
        axes.plot(
            *_points(child, origin),
            color=shade,
            linewidth=1.3,
            linestyle="--" if label else "-",
            label=row,
        )
        last = child.bytes[-1] / MIB
        axes.plot([(child.ended_us - origin) / 1e6], [last], marker="x", color=shade, markersize=5)
    if children:
        whole = total(curves)
        row = None if label else f"all together (peak {format_bytes(whole.peak_bytes)})"
        axes.plot(*_points(whole, origin), color=colour if label else "#888888", linestyle=":", label=row)


def _peak(axes: Any, curves: list[Curve], seconds: tuple[float, float] | None) -> None:
    """A cross at the highest sample of the program, as mprof draws it."""
    origin = min(curve.started_us for curve in curves)
    curve = curves[0]
    if seconds is not None:
        curve = curve.between(*(origin + round(limit * 1e6) for limit in seconds))
    size, time_us = curve.sampled_peak
    if time_us:
        style = {"color": "#cc0000", "linestyle": "--", "linewidth": 0.8}
        axes.axhline(size / MIB, **style)
        axes.axvline((time_us - origin) / 1e6, **style)


def _brackets(axes: Any, spans: list[Span], curves: list[Curve], origin: int) -> None:
    """Calls: an opening bracket at the start, a closing one at the end, at the memory held then."""
    known = {curve.pid for curve in curves}
    by_name: dict[str, list[Span]] = {}
    for span in sorted(spans, key=lambda span: span.started_us):
        if span.pid in known or not span.pid:  # what the picture shows no curve of has no place in it
            by_name.setdefault(span.name, []).append(span)
    for number, (name, calls) in enumerate(by_name.items()):
        colour = COLOURS[number % len(COLOURS)]
        for call in calls:
            _bracket(axes, (call.started_us - origin) / 1e6, call.start_bytes / MIB, 1, colour)
            _bracket(axes, (call.ended_us - origin) / 1e6, call.end_bytes / MIB, -1, colour)
        seconds = sum(call.ended_us - call.started_us for call in calls) / 1e6
        times = f", {len(calls)} calls" if len(calls) > 1 else ""
        label = f"{seconds:.2f} s in {name}{times}"  # not the name first: `_` would hide it
        axes.plot([], [], color=colour, marker="$[\\,]$", markersize=9, linestyle="none", label=label)


def _bracket(axes: Any, x: float, y: float, turn: int, colour: str) -> None:
    from matplotlib.path import Path as Outline

    shape = [(4 * turn, -9), (0, -9), (0, 9), (4 * turn, 9)]  # points around the place, whatever the zoom
    axes.plot([x], [y], marker=Outline(shape), markersize=18, color=colour, fillstyle="none", mew=2)


def _flames(axes: Any, spans: list[Span], origin: int, number: int) -> None:
    """Calls as bars, nested ones below their callers."""
    names = list(dict.fromkeys(span.name for span in spans))
    for span in spans:
        left, taken = (span.started_us - origin) / 1e6, (span.ended_us - span.started_us) / 1e6
        colour = COLOURS[(names.index(span.name) + number) % len(COLOURS)]
        (bar,) = axes.barh(
            span.level, taken, left=left, height=0.85, color=colour, alpha=0.5, edgecolor="white"
        )
        text = axes.text(left, span.level, f" {span.name}", va="center", fontsize=8, clip_on=True)
        text.set_clip_path(bar)
    axes.invert_yaxis()
    axes.set_yticks([])
    axes.set_ylabel("calls")
    axes.spines[["top", "right", "left"]].set_visible(False)


def _marks(axes: Any, trace: Trace, origin: int) -> None:
    for mark in trace.marks:
        if mark.time_us:
            x = (mark.time_us - origin) / 1e6
            axes.axvline(x, color="#555555", linewidth=0.8, linestyle="-.")
            axes.annotate(
                mark.name,
                (x, 1),
                xycoords=("data", "axes fraction"),
                xytext=(2, -2),
                textcoords="offset points",
                rotation=90,
                va="top",
                fontsize=8,
                color="#555555",
            )
