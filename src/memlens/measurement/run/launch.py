"""Starting a program to be recorded. What records it is loaded while it already runs.

So this file imports little: every program waits for what is imported here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from memlens.measurement.child.channel import VARIABLE
from memlens.measurement.run import fast_start, programs
from memlens.measurement.run.settings import Settings, Started

if TYPE_CHECKING:
    from memlens.measurement.run.recording import OpenSink, Recording

CAPTURE = "capture"  # memray's file, in the folder of a run


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
    early = fast_start.started
    with _started(program, settings, streams or {}) as (process, begun_us, folder):
        from memlens.measurement.run.recorder import watch  # takes 60 ms: the program runs meanwhile

        capture = os.path.join(folder, CAPTURE) if settings.exact else None
        channel = os.path.join(folder, "channel")
        seen = early.stop_looking() if early is not None else []
        started = Started(program, programs.Waiter(process), begun_us, channel, capture, seen)
        return watch(started, settings, open_sink, on_tick)


@contextmanager
def _started(
    program: programs.Program, settings: Settings, streams: Mapping[str, int]
) -> Iterator[tuple[fast_start.Running, int, str]]:
    """The program, since when it runs, and a folder that is removed in the end."""
    early, fast_start.started = fast_start.started, None
    folder = early.folder if early is not None else fast_start.new_folder()
    try:
        if early is not None:  # it was started before anything was loaded
            try:
                yield early.process, early.begun_us, folder
            finally:
                early.signals.restore()
            return
        options = {"interval": settings.interval_s, **settings.inside}
        if settings.exact:
            options["exact"] = os.path.join(folder, CAPTURE)
        argv = program.argv(None if settings.bare else options)
        environment = {**os.environ, VARIABLE: os.path.join(folder, "channel")}
        with programs.started(argv, environment, streams) as process:
            yield process, time.time_ns() // 1000, folder
    finally:
        fast_start.remove_folder(folder)
