"""`memlens attach`: record a process that runs already, from outside."""

from __future__ import annotations

from typing import Any

import click

from memlens.cli.recording_options import Options, recording_options
from memlens.errors import UsageError
from memlens.measurement.run.recorder import record_pid

TIMEOUT_SECONDS = 3600.0  # mprof's default


@click.command()
@recording_options
@click.argument("process", metavar="PID|NAME")
def command(process: str, **shared: Any) -> int:
    """Record a running process and its children until it ends, the timeout (an hour), or Ctrl-C.

    \b
    memlens attach 4711
    memlens attach jupyter-lab -t 60

    A name is found in process names and command lines; the newest one counts. The process is not touched.
    """
    return attach(process, Options(**shared))


def attach(process: str, options: Options) -> int:
    """Record the process that a PID or a name means."""
    if options.backend == "tracemalloc":
        raise UsageError("Python's own memory cannot be seen from outside", hint="memlens run --python-level")
    settings = options.settings(**({} if options.timeout else {"timeout_s": TIMEOUT_SECONDS}))
    path, open_sink = options.sink()
    pid = find(process)
    with options.display(relay=False) as (on_tick, _):
        recording = record_pid(pid, settings, open_sink, on_tick)
    options.conclude(recording, path)
    return 0


def find(process: str) -> int:
    """A pid from a pid or a name; the newest process if several match, never this one or its parents."""
    if process.isdigit():
        return int(process)
    import psutil  # takes 10 ms: a pid needs none of it

    own = psutil.Process()
    excluded = {own.pid, *(parent.pid for parent in own.parents())}
    candidates = []
    for candidate in psutil.process_iter(["name", "cmdline", "create_time"]):
        info = candidate.info
        words = [info["name"] or "", *(info["cmdline"] or [])]
        if candidate.pid not in excluded and any(process in word for word in words):
            candidates.append((info["create_time"] or 0.0, candidate.pid))
    if not candidates:
        raise UsageError(f"no running process is called {process!r}", hint="give its PID")
    return max(candidates)[1]
