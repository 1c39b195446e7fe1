"""What `run` and `attach` share: their options, the record they write, what they say at the end.

A program waits for what is imported at the top; everything else is loaded while it runs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from memlens.errors import RecordError, UsageError
from memlens.measurement.run.settings import Settings
from memlens.records import folder

if TYPE_CHECKING:
    from memlens.measurement.run.recorder import OnTick
    from memlens.measurement.run.recording import OpenSink, Recording, Sink
    from memlens.model import Trace

F = TypeVar("F", bound=Callable[..., Any])

# mprof's --backend -> the figure that its curve shows
BACKENDS = {
    "psutil": "rss",
    "psutil_pss": "pss",
    "psutil_uss": "uss",
    "posix": "rss",
    "tracemalloc": "python",
}
# what is made from a record, not recorded: the ending -> how
DRAWN = {
    **dict.fromkeys((".png", ".svg", ".pdf"), "memlens plot run.memlens -o {}"),
    ".html": "memlens report run.memlens -o {}",
    ".json": "memlens peak --json run.memlens",
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
    """The options of every command that records; they arrive as keywords, for `Options`."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@dataclass(frozen=True, slots=True)
class Options:
    """The shared options as they were typed. `multiprocess` is mprof's; it is what we always do."""

    interval: float
    include_children: bool
    multiprocess: bool
    timeout: float | None
    output: Path | None
    force: bool
    backend: str
    live: bool
    as_json: bool
    quiet: bool

    def settings(self, **more: Any) -> Settings:
        """Checked settings for a recording."""
        if not 0.001 <= self.interval <= 3600:
            raise UsageError(f"an interval of {self.interval} s is not between 0.001 and 3600")
        if self.timeout is not None and self.timeout <= 0:
            raise UsageError(f"a timeout of {self.timeout} s is not above 0")
        return Settings(
            self.interval,
            BACKENDS[self.backend],
            self.include_children,
            **{"timeout_s": self.timeout, **more},
        )

    def sink(self) -> tuple[Path, OpenSink]:
        """The record's name and what opens it, by its extension; refuses to overwrite without --force."""
        path = self.output or folder.free_name()
        if path.suffix.lower() in DRAWN:
            way = DRAWN[path.suffix.lower()]
            raise UsageError(
                f"cannot record into {path}: a record is no {path.suffix} file",
                hint=f"-o run.memlens, then {way.format(path)}",
            )
        if path.exists() and not self.force:
            raise UsageError(
                f"{path} exists and would be overwritten", hint="use --force, or another -o FILE"
            )
        if not os.access(path.parent, os.W_OK) or path.is_dir():
            raise RecordError(
                f"cannot write {path}: {path.parent.resolve()} is no directory that we may write to"
            )
        return path, lambda trace: open_record(path, trace, BACKENDS[self.backend], self.include_children)

    @contextmanager
    def display(self, relay: bool) -> Iterator[tuple[OnTick | None, dict[str, int]]]:
        """The live view, if it was asked for: what to call at every tick, and where the program writes."""
        if not self.live:
            yield (None if self.quiet and not self.as_json else _load_the_rest), {}
            return
        from memlens.cli.live import live_view  # rich takes its time to load

        with live_view(relay) as (view, streams):
            yield view, streams

    def conclude(self, recording: Recording, path: Path) -> None:
        """Report the result: a few lines on standard error, or JSON on standard output."""
        if recording.sink_error:
            click.echo(f"memlens: {recording.sink_error}", err=True)
        if self.quiet and not self.as_json:
            return
        from memlens.explanation.usage import usage
        from memlens.render.timeline import describe

        peaks = usage(recording.trace)
        if self.as_json:
            click.echo(json.dumps({**peaks.to_dict(), "lines": recording.lines, "record": str(path)}))
        else:
            notes = "".join(f"\n  note: {note.what}: {note.why}" for note in recording.trace.assumptions)
            click.echo(f"memlens: {describe(peaks)}{notes}\n  record: {path}", err=True)


def _load_the_rest(recording: Recording) -> None:
    """At every tick; at the first, what `conclude` needs: the program runs meanwhile."""
    import memlens.render.timeline  # noqa: F401


def open_record(path: Path, trace: Trace, figure: str, include_children: bool) -> Sink:
    """A growing record in the format of its name's ending."""
    from memlens.records import mprofile, native

    if path.suffix == mprofile.EXTENSION:
        return mprofile.Writer(path, trace, figure, include_children)
    return native.Writer(path, trace)
