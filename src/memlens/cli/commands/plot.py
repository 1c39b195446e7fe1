"""`memlens plot`: the curve of a record, in the terminal or as a picture."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import click

from memlens.cli.output import check_output, print_text
from memlens.errors import UsageError
from memlens.explanation.curves import unsampled_curves
from memlens.explanation.explain import as_trace
from memlens.explanation.over_time import (
    ALLOCATED,
    SECONDS,
    WORDS,
    axis_of,
    curves_to_draw,
    figure_of,
    holds_allocations,
)
from memlens.model import Trace
from memlens.records import folder
from memlens.render import plot, timeline


@click.command(context_settings={"ignore_unknown_options": True})  # -1 is the newest record
@click.option("-t", "--title", help="A title instead of the command line.")
@click.option("-n", "--no-function-ts", is_flag=True, help="Without the functions.")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="A picture: FILE.png, .svg or .pdf.")
@click.option("--force", is_flag=True, help="Overwrite the picture.")
@click.option("-w", "--window", help="Only these seconds (of a prediction: events): A,B from the start.")
@click.option("-f", "--flame", is_flag=True, help="Functions as bars by their nesting (in a picture).")
@click.option("-s", "--slope", is_flag=True, help="A line of least squares: growth a second (in a picture).")
@click.option("--backend", metavar="MPL", help="Open a window with this backend of matplotlib.")
@click.option("--figure", type=click.Choice(list(WORDS)), help="What to draw instead of what was recorded.")
@click.option("--width", type=click.IntRange(40, 500), help="Columns in the terminal.")
@click.argument("records", nargs=-1, metavar="[FILE|INDEX]...")
def command(
    records: tuple[str, ...],
    title: str | None,
    no_function_ts: bool,
    output: Path | None,
    force: bool,
    window: str | None,
    flame: bool,
    slope: bool,
    backend: str | None,
    figure: str | None,
    width: int | None,
) -> None:
    """Draw records (the newest if none is named): in the terminal, or as a picture with -o.

    \b
    memlens plot
    memlens plot -w 2,5 mprofile_20260131235959.dat
    memlens plot -s -o both.png 0 1
    memlens plot predicted.memlens -o curve.svg

    Runs are drawn by process; predictions and snapshots by allocated and reserved memory, and by what it is
    for in a picture.
    """
    check_output(output, force)
    seconds = parse_window(window)
    named_traces = [(path.name, as_trace(path)) for path in folder.resolve(records)]
    kind = figure or figure_of(named_traces[0][1])
    common: dict[str, Any] = {"seconds": seconds, "functions": not no_function_ts, "title": title}
    picture = {"kind": kind, "flame": flame, "slope": slope, **common}
    if output is None and backend is None:
        if flame or slope:
            raise UsageError("-f and -s are for pictures", hint="add -o FILE.png, or --backend")
        columns = width or min(shutil.get_terminal_size((100, 24)).columns, 200)
        for name, trace in named_traces:
            own = figure or figure_of(trace)
            check_curve(name, trace, own, seconds)
            common["title"] = title or f"{name}: {timeline.subject(trace)}"
            print_text(timeline.draw(trace, figure=own, width=columns, **common))
    elif output is None:
        plot.show(named_traces, str(backend), **picture)
    else:
        plot.save(named_traces, output, **picture)
        click.echo(f"wrote {output}")


def check_curve(name: str, trace: Trace, figure: str, seconds: tuple[float, float] | None) -> None:
    """Refuse to draw nothing."""
    series = curves_to_draw(trace, figure)
    if not series:
        hint = "--figure allocated" if holds_allocations(trace) else None
        if figure == "rss" and unsampled_curves(trace):
            hint = "it ended before it could be sampled once; memlens peak tells its highest"
        raise UsageError(f"{name} holds no {WORDS[figure]}", hint=hint)
    axis = axis_of(trace) if figure == ALLOCATED else SECONDS
    length = max(curve.ended_us for curve in series) - min(curve.started_us for curve in series)
    if seconds is not None and (seconds[0] > length / axis.per_unit or seconds[1] < 0):
        raise UsageError(
            f"{name} has nothing between {seconds[0]:g} and {seconds[1]:g} {axis.unit}",
            hint=f"it ends at {timeline.place_text(length, axis)}",
        )


def parse_window(text: str | None) -> tuple[float, float] | None:
    """`2,5` as seconds from the start."""
    if text is None:
        return None
    try:
        start, end = (float(limit) for limit in text.split(","))
    except ValueError:
        raise UsageError(
            f"cannot read {text!r} as a window", hint="write -w 2,5 for seconds 2 to 5"
        ) from None
    if not start < end:
        raise UsageError(f"a window must end after it begins, got {text!r}")
    return start, end
