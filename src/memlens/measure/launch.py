"""Starting a program to be recorded. What records it is loaded while it already runs.

So this file imports little: every program waits for what is imported here.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from memlens.measure import programs

if TYPE_CHECKING:
    from memlens.measure.recording import OpenSink, Recording


@dataclass(frozen=True, slots=True)
class Settings:
    """How to record. `figure` is a key of model.FIGURES; `timeout_s` ends the recording, not the program."""

    interval_s: float = 0.1
    figure: str = "rss"
    include_children: bool = False  # show the sum over processes instead of each
    timeout_s: float | None = None
    inside: dict[str, object] = field(default_factory=dict)  # options of bootstrap.py
    exact: bool = False  # every allocation, through memray
    bare: bool = False  # start the program as it is, with nothing of ours inside


@dataclass(frozen=True, slots=True)
class Started:
    """A program that runs: where it talks to us, and where memray writes, if it does."""

    program: programs.Program
    waiter: programs.Waiter
    started_us: int
    channel: str
    capture: str | None


def record_program(
    program: programs.Program,
    settings: Settings,
    open_sink: OpenSink | None = None,
    on_tick: Callable[[Recording], None] | None = None,
    streams: Mapping[str, int] | None = None,
) -> Recording:
    """Run a program to its end and record it. Its exit code is the trace's metadata `exit_code`.

    `streams` gives descriptors for its "stdout" and "stderr" where they are not to be ours.
    """
    with tempfile.TemporaryDirectory(prefix="memlens-") as folder:
        channel, capture = os.path.join(folder, "channel"), os.path.join(folder, "capture")
        open(channel, "wb").close()
        options = {"interval": settings.interval_s, **settings.inside}
        if settings.exact:
            options["exact"] = capture
        argv = program.argv(None if settings.bare else options)
        environment = {**os.environ, "MEMLENS_CHANNEL": channel}
        with programs.started(argv, environment, streams or {}) as process:
            begun = time.time_ns() // 1000
            from memlens.measure.recording import watch  # takes 60 ms: the program runs meanwhile

            waiter = programs.Waiter(process)
            exact = capture if settings.exact else None
            started = Started(program, waiter, begun, channel, exact)
            return watch(started, settings, open_sink, on_tick)
