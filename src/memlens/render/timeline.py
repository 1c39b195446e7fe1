"""The course of a run in the terminal: memory as an area, lives of processes and functions below it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from memlens.explanation.curves import Curve, total
from memlens.explanation.over_time import (
    ALLOCATED,
    SECONDS,
    WORDS,
    Axis,
    axis_of,
    curves_to_draw,
    figure_of,
    phase_at,
    phases_of,
    place_of,
    places_of,
)
from memlens.explanation.usage import Usage
from memlens.model import FIGURES, Span, Trace
from memlens.units import format_bytes, format_count

BLOCKS = " ▁▂▃▄▅▆▇█"
ROWS_SHOWN = 12  # of processes, and of functions; more would push the curve off the screen


@dataclass(frozen=True, slots=True)
class Window:
    """Which part of time is drawn, and over how many columns."""

    start_us: int
    end_us: int
    columns: int
    axis: Axis = SECONDS

    def column(self, time_us: int) -> int:
        span = max(self.end_us - self.start_us, 1)
        return min(max((time_us - self.start_us) * self.columns // span, 0), self.columns - 1)


def draw(
    trace: Trace,
    *,
    figure: str = "rss",
    width: int = 100,
    height: int = 12,
    seconds: tuple[float, float] | None = None,
    functions: bool = True,
    title: str | None = None,
) -> str:
    """A trace's curve as text, `width` columns wide. `seconds` is a window, counted from the start.

    Of a prediction, which has no times, the axis and the window count events.
    """
    curves = curves_to_draw(trace, figure)
    if not curves:
        return f"no {WORDS[figure]} was recorded"
    axis = axis_of(trace) if figure == ALLOCATED else SECONDS
    origin = min(curve.started_us for curve in curves)
    start, end = origin, max(curve.ended_us for curve in curves)
    if seconds is not None:
        start, end = (origin + round(limit * axis.per_unit) for limit in seconds)
    margin = 12
    window = Window(start, end, max(width - margin, 20), axis)
    lines = [title or str(trace.metadata.get("command", "")), *_area(curves, window, height, figure, margin)]
    lines.append(_axis(window, origin, margin))
    if figure == ALLOCATED:
        lines += _phases(trace, window, margin)
        return "\n".join(line.rstrip() for line in lines)
    lines += _marks(trace, window, margin)
    if len(curves) > 1:
        lines += ["", *_lives(curves, window, margin)]
    if functions and trace.spans:
        lines += ["", *_functions(trace.spans, window, margin)]
    return "\n".join(line.rstrip() for line in lines)


def _columns(curve: Curve, window: Window) -> list[int]:
    """The highest that a curve was in each column; between two samples it keeps the first one's value."""
    tops = [0] * window.columns
    for place, (time_us, size) in enumerate(zip(curve.times_us, curve.bytes, strict=True)):
        until = curve.times_us[place + 1] if place + 1 < len(curve.times_us) else curve.ended_us
        if until < window.start_us or time_us > window.end_us:
            continue
        for column in range(window.column(time_us), window.column(until) + 1):
            tops[column] = max(tops[column], size)
    return tops


def _area(curves: list[Curve], window: Window, height: int, figure: str, margin: int) -> Iterable[str]:
    """The program solid, its children shaded on top of it; or allocated, and what is reserved besides."""
    own = _columns(curves[0], window)
    if len(curves) == 1:
        every, legend = own, ""
    elif figure == ALLOCATED:
        every, legend = list(map(max, own, _columns(curves[1], window))), " █ and reserved, unused ░"
    else:
        every, legend = _columns(total(curves), window), ", program █ and children ░"
    program, whole = own, every
    top = max(whole) or 1
    yield f"{WORDS[figure]}{legend}"
    for row in range(height, 0, -1):
        label = format_bytes(top * row / height, precision=1) if row in (height, (height + 1) // 2) else ""
        cells = "".join(cell(own, every, top, row, height) for own, every in zip(program, whole, strict=True))
        yield f"{label:>{margin - 2}} ┤{cells}"


def cell(own: int, every: int, top: int, row: int, height: int) -> str:
    """What is drawn at `row` (1 is the lowest): the program, its children above it, or nothing."""
    level = own / top * height - (row - 1)
    if level >= 1 or (level > 0 and every <= own):
        return BLOCKS[min(max(round(level * 8), 1), 8)]
    if every / top * height > row - 1:
        return "░" if level <= 0 or every > own else BLOCKS[min(max(round(level * 8), 1), 8)]
    return " "


def _axis(window: Window, origin: int, margin: int) -> str:
    left_text, right_text = (
        place_text(place - origin, window.axis) for place in (window.start_us, window.end_us)
    )
    gap = " " * max(window.columns - len(left_text) - len(right_text), 1)
    rule = " " * (margin - 1) + "└" + "─" * window.columns
    return f"{rule}\n{' ' * margin}{left_text}{gap}{right_text}"


def place_text(place: int, axis: Axis) -> str:
    """A place along the axis, counted from the start: `1.50 s`, or `event 2,601`."""
    return f"{place / 1e6:,.2f} s" if axis is SECONDS else f"event {format_count(place)}"


def _phases(trace: Trace, window: Window, margin: int) -> Iterable[str]:
    """The phases on one line, each name where it begins: the longest first, as far as there is room."""
    places, cells, hidden = places_of(trace), [" "] * window.columns, 0
    for mark, _, _ in sorted(phases_of(trace), key=lambda phase: phase[1] - phase[2]):
        place = place_of(mark, places)
        if not window.start_us <= place <= window.end_us:
            continue
        column, text = window.column(place), f"└{mark.short_title}"
        around = slice(max(column - 1, 0), column + len(text) + 1)
        if column + len(text) > window.columns or set(cells[around]) != {" "}:
            hidden += 1
            continue
        cells[column : column + len(text)] = text
    if any(cell != " " for cell in cells):
        yield " " * margin + "".join(cells)
    if hidden:
        yield f"{'':>{margin}}… and {hidden} shorter phases without room here"


def _marks(trace: Trace, window: Window, margin: int) -> Iterable[str]:
    for mark in trace.marks:
        if window.start_us <= mark.time_us <= window.end_us:
            column = window.column(mark.time_us)
            text = f"▲ {mark.name}"
            if column + len(text) > window.columns:
                text, column = f"{mark.name} ▲", max(column - len(mark.name) - 1, 0)
            yield " " * (margin + column) + text


def _bar(pieces: Iterable[tuple[int, int]], window: Window) -> str:
    """Lives as brackets on one line: ├──┤, or │ where one is shorter than a column."""
    cells = [" "] * window.columns
    for start, end in pieces:
        if end < window.start_us or start > window.end_us:
            continue
        first, last = window.column(start), window.column(end)
        cells[first : last + 1] = ["├", *"─" * (last - first - 1), "┤"] if last > first else ["│"]
    return "".join(cells)


def _lives(curves: list[Curve], window: Window, margin: int) -> Iterable[str]:
    for curve in curves[:ROWS_SHOWN]:
        peak = format_bytes(curve.peak_bytes, precision=1)
        yield f"{peak:>{margin - 1}} {_bar([(curve.started_us, curve.ended_us)], window)}"
        yield f"{'':>{margin}}{curve.name} (pid {curve.pid})"
    if len(curves) > ROWS_SHOWN:
        yield f"{'':>{margin}}… and {len(curves) - ROWS_SHOWN} more processes"


def _functions(spans: list[Span], window: Window, margin: int) -> Iterable[str]:
    by_name: dict[str, list[Span]] = {}
    for span in sorted(spans, key=lambda span: span.started_us):
        by_name.setdefault(span.name, []).append(span)
    for name, calls in list(by_name.items())[:ROWS_SHOWN]:
        growth = format_bytes(
            sum(call.end_bytes - call.start_bytes for call in calls), precision=1, sign=True
        )
        yield f"{growth:>{margin - 1}} {_bar(((call.started_us, call.ended_us) for call in calls), window)}"
        yield f"{'':>{margin}}{name}{f', {len(calls)} calls' if len(calls) > 1 else ''}"
    if len(by_name) > ROWS_SHOWN:
        yield f"{'':>{margin}}… and {len(by_name) - ROWS_SHOWN} more functions"


def subject(trace: Trace) -> str:
    """What a drawing is of: the command, or the peaks of allocations with the phase they fall in."""
    if figure_of(trace) != ALLOCATED:
        return str(trace.metadata.get("command", ""))
    timeline = trace.timeline()
    index = timeline.peak_index
    phase = f" in {name}" if (name := phase_at(trace, index)) else ""
    held = f", {format_bytes(timeline.peak_reserved_bytes)} reserved" if timeline.reserved else ""
    return f"peak {format_bytes(timeline.peak_allocated_bytes)} allocated{phase}{held}"


def describe(run: Usage) -> str:
    """A run in a few lines: how it ended, and every peak that is known.

    A figure that could not be read says so; it is never shown as 0.
    """
    ending = "still runs" if run.exit_code is None else _ending(run.exit_code)
    lines = [f"{run.command}: {ending} after {run.elapsed_us / 1e6:,.2f} s"]
    children = len(run.processes) - 1
    for figure, (_, words) in FIGURES.items():
        if figure not in run.whole:
            continue
        own = run.program.get(figure)
        text = format_bytes(own.bytes) if own else "n/a"
        if own and own.time_us is not None:
            text += f" at {own.time_us / 1e6:,.2f} s"
        if children > 0:
            with_children = "its child" if children == 1 else f"its {children} children"
            text += f"; with {with_children} {format_bytes(run.whole[figure].bytes)}"
        rare = own and "rss" in run.program and own.readings < run.program["rss"].readings
        if own and rare and own.time_us is not None:
            # read less often, as it costs more: what lay between the readings was not seen
            text = f"at least {text} ({own.readings} reading{'s' if own.readings > 1 else ''})"
        if run.whole[figure].bytes or figure != "swap":
            lines.append(f"  peak {words:<34}{text}")
    if run.largest_process_bytes:
        size = format_bytes(run.largest_process_bytes)
        lines.append(f"  one of its processes reached {size} between samples, by the system's own count")
    if run.copied is not None:
        workers = f"{run.copied.workers} forked workers" if run.copied.workers > 1 else "a forked worker"
        size = format_bytes(run.copied.bytes)
        lines += [
            f"  {workers} copied at least {size} that they shared with their parent: Python writes a",
            "    reference count into every object that it looks at, and that copies the page it is in.",
            "    numpy arrays and tensors stay shared: keep the data in them, not in lists of objects",
        ]
    if run.gpu_note:
        lines.append(f"  peak {FIGURES['gpu'][1]:<34}n/a: {run.gpu_note}")
    if not run.processes:
        lines.append("  it ended before it could be sampled once")
    return "\n".join(lines)


def _ending(exit_code: int) -> str:
    return f"ended by signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
