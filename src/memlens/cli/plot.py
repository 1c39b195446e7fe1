"""`memlens plot`: the curve of a record, in the terminal or as a picture."""

from __future__ import annotations

import shutil

import click

from memlens.errors import UsageError
from memlens.model import FIGURES
from memlens.records import folder, load
from memlens.render.timeline import draw


@click.command(context_settings={"ignore_unknown_options": True})  # -1 is the newest record
@click.option("-t", "--title", help="A title instead of the command line.")
@click.option("-n", "--no-function-ts", is_flag=True, help="Without the functions.")
@click.option("-w", "--window", help="Only these seconds: A,B from the start.")
@click.option("--figure", type=click.Choice(list(FIGURES)), help="What to draw instead of what was recorded.")
@click.option("--width", type=click.IntRange(40, 500), help="Columns in the terminal.")
@click.argument("records", nargs=-1, metavar="[FILE|INDEX]...")
def command(
    records: tuple[str, ...],
    title: str | None,
    no_function_ts: bool,
    window: str | None,
    figure: str | None,
    width: int | None,
) -> None:
    """Draw records (the newest if none is named) in the terminal.

    \b
    memlens plot
    memlens plot -w 2,5 mprofile_20260131235959.dat
    """
    seconds = parse_window(window)
    columns = width or min(shutil.get_terminal_size((100, 24)).columns, 200)
    for path in folder.resolve(records):
        trace = load(path)
        chosen = figure or trace.metadata.get("figure", "rss")
        text = draw(
            trace,
            figure=chosen,
            width=columns,
            seconds=seconds,
            functions=not no_function_ts,
            title=title or f"{path.name}: {trace.metadata.get('command', '')}",
        )
        click.echo(text)


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
