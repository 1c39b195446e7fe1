"""What `run` and `attach` share: their options, the record they write, what they say at the end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import click

from memlens.errors import UsageError
from memlens.measure.recording import OnTick, OpenSink, Recording, Settings
from memlens.model import usage
from memlens.records import mprofile, native
from memlens.render.timeline import describe

F = TypeVar("F", bound=Callable[..., Any])

# mprof's --backend -> the figure that its curve shows
BACKENDS = {
    "psutil": "rss",
    "psutil_pss": "pss",
    "psutil_uss": "uss",
    "posix": "rss",
    "tracemalloc": "python",
}


_OPTIONS = [
    click.option(
        "-T", "--interval", type=float, default=0.1, show_default=True, help="Seconds between samples."
    ),
    click.option("-C", "--include-children", is_flag=True, help="One curve: the sum over all processes."),
    click.option("-M", "--multiprocess", is_flag=True, help="A curve for each child (the default)."),
    click.option("-t", "--timeout", type=float, help="Record for this many seconds at most."),
    click.option(
        "-o", "--output", type=click.Path(path_type=Path), help="The record; FILE.dat is mprof's format."
    ),
    click.option("--force", is_flag=True, help="Overwrite the record."),
    click.option(
        "--backend",
        type=click.Choice(list(BACKENDS)),
        default="psutil",
        show_default=True,
        help="What counts as memory: RSS, PSS, USS, or Python's own.",
    ),
    click.option("--live", is_flag=True, help="Show the curve while it runs."),
    click.option("--json", "as_json", is_flag=True, help="The summary as JSON, on standard output."),
    click.option("-q", "--quiet", is_flag=True, help="No summary at the end."),
]


def recording_options(function: F) -> F:
    """The options of every command that records."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def settings_for(
    interval: float, backend: str, timeout: float | None, include_children: bool, **more: Any
) -> Settings:
    """Checked settings, from the options as they were typed."""
    if not 0.001 <= interval <= 3600:
        raise UsageError(f"an interval of {interval} s is not between 0.001 and 3600")
    if timeout is not None and timeout <= 0:
        raise UsageError(f"a timeout of {timeout} s is not above 0")
    return Settings(interval, BACKENDS[backend], include_children, timeout, **more)


def sink_opener(path: Path, force: bool, settings: Settings) -> OpenSink:
    """What opens the record, in the format of its extension; refuses to overwrite without --force."""
    if path.exists() and not force:
        raise UsageError(f"{path} exists and would be overwritten", hint="use --force, or another -o FILE")
    if path.suffix == mprofile.EXTENSION:
        return lambda trace: mprofile.Writer(path, trace, settings.figure, settings.include_children)
    return lambda trace: native.Writer(path, trace)


@contextmanager
def display(live: bool, relay: bool) -> Iterator[tuple[OnTick | None, dict[str, int]]]:
    """The live view, if it was asked for: what to call at every tick, and where the program writes."""
    if not live:
        yield None, {}
        return
    from memlens.cli.live import live_view  # rich takes its time to load

    with live_view(relay) as (view, streams):
        yield view, streams


def conclude(recording: Recording, path: Path, as_json: bool, quiet: bool) -> None:
    """Say what came out: a few lines on standard error, or JSON on standard output."""
    if recording.sink_error:
        click.echo(f"memlens: {recording.sink_error}", err=True)
    found = usage(recording.trace)
    if as_json:
        click.echo(json.dumps({**found.as_dict(), "record": str(path)}))
    elif not quiet:
        notes = "".join(f"\n  note: {note.what}: {note.why}" for note in recording.trace.assumptions)
        click.echo(f"memlens: {describe(found)}{notes}\n  record: {path}", err=True)
