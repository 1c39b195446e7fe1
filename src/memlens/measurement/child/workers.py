"""Processes that a Python program under `memlens run` makes itself: `profile` in their builtins, their lines.

Loaded by bootstrap.py when it is needed; standard library only at import. A forked process has everything
already and counts from the fork on; a spawned one is a fresh interpreter, told before it imports the program.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

_bootstrap: Any = sys.modules["_memlens_bootstrap"]
_channel: Any = sys.modules["_memlens_channel"]
_spans: Any = sys.modules["_memlens_spans"]
_import_hooks: Any = sys.modules["_memlens_import_hooks"]
WORKER_SECONDS = 0.2  # how often a worker tells its tables, where something ran
# of a worker's time, and seconds besides, that may go into telling them before the results of a pool's tasks
SHARE, ALLOWANCE = 0.05, 0.1
_WELCOME = """\
import sys
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("_memlens_bootstrap", path)
module = module_from_spec(spec)
try:
    spec.loader.exec_module(module)
    sys.modules[spec.name] = module
    module.work(options, file)
except Exception as error:  # another user, another root: the worker goes on without
    sys.stderr.write(f"memlens: a worker does not know `profile`: {error}\\n")
"""


class Welcome:
    """Part of what a spawned worker unpickles before it imports the program."""

    def __init__(self, options: dict[str, str], file: str) -> None:
        self.known = {"path": _bootstrap.__file__, "options": options, "file": file}

    def __reduce__(self) -> Any:
        return exec, (_WELCOME, self.known)


def welcome(spawn: Any, options: dict[str, str], file: str) -> None:
    """Have every worker that multiprocessing spawns know `profile`, and measure lines if we do."""
    before = spawn.get_preparation_data
    shared = {key: options[key] for key in _SHARED if key in options}

    @wraps(before)
    def get_preparation_data(name: str) -> dict[str, Any]:
        return {**before(name), "memlens": Welcome(shared, file)}

    spawn.get_preparation_data = get_preparation_data


_SHARED = ("lines", "oom", "source", "backend", "children", "python_level", "interval")
_lines: Lines | None = None  # of this process


def measure_lines(options: dict[str, str], files: tuple[str, ...]) -> Callable[[], None]:
    """Measure line by line, here and in every worker; the function to call at the end."""
    global _lines
    lines = _lines = Lines(options, files)
    lines.start()
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=lines.renew)
    _import_hooks.after_import("multiprocessing.util", lines.tell_at_end)
    _import_hooks.after_import("multiprocessing.pool", lines.tell_before_results)
    return lines.finish


def tell() -> None:
    """Tell the tables of this process, if it measures lines."""
    if _lines is not None:
        _lines.tell_all()


class Lines:
    """The line profiler of this process, and how what it found is told."""

    def __init__(self, options: dict[str, str], files: tuple[str, ...]) -> None:
        with _import_hooks.PathOf(options):
            try:
                from memlens.measurement.lines.profiler import LineProfiler
            except ImportError as error:
                sys.exit(f"memlens: --lines needs memlens in the program's Python: {error}")
        self._make: Callable[[], Any] = lambda: LineProfiler(
            files=files,
            backend=options.get("backend"),
            python_level="python_level" in options,
            include_children="children" in options,
        )

    def start(self, seconds: float = _import_hooks.TABLES_SECONDS) -> None:
        self._told, self._spent, self._begun = -1, 0.0, time.perf_counter()
        self._complete = False
        self.profiler = self._make()
        _spans.add_function = self.profiler.add_function
        self.profiler.enable()
        self._stop: Callable[[], None] = _import_hooks.repeat(self.tell, seconds)

    def renew(self) -> None:
        """In a forked child: count from here on, not again what the parent did."""
        before = self.profiler
        before.disable()
        self.start(WORKER_SECONDS)
        for code in before.codes:
            self.profiler.add_code(code)
        _channel.say("lines", tables=[], complete=False)  # here we are

    def tell_all(self) -> None:
        """Say what the lines did, and that this is all so far: a worker may end without another word."""
        self.tell(complete=True)

    def tell(self, complete: bool = False) -> None:
        """Say what the lines did so far, if any ran since the last time."""
        try:
            tables = self.profiler.tables()
        except RuntimeError:
            return  # the program changed a table under us: the next time, or the last, will do
        ran = sum(table.calls + table.lines_run for table in tables)
        if ran != self._told or complete != self._complete:
            self._told, self._complete = ran, complete
            _channel.say("lines", tables=[table.to_dict() for table in tables], complete=complete)

    def finish(self) -> None:
        self.profiler.disable()
        self._stop()
        self.tell_all()

    def tell_at_end(self, util: Any) -> None:
        """Have multiprocessing's workers tell when they end: they leave by `os._exit`."""
        util.register_after_fork(self, lambda lines: util.Finalize(None, lines.tell_all, exitpriority=-1))

    def tell_before_results(self, pool: Any) -> None:
        """Have a pool's workers tell before they give a result: after the last one they may be killed."""
        work = pool.worker

        @wraps(work)
        def worker(inqueue: Any, outqueue: Any, *args: Any, **kwargs: Any) -> None:
            self.tell_all()  # nothing yet, and it may never get a task
            work(inqueue, Results(outqueue, self), *args, **kwargs)

        pool.worker = worker

    def tell_soon(self) -> None:
        begun = time.perf_counter()
        if self._spent <= ALLOWANCE + SHARE * (begun - self._begun):
            self.tell_all()
            self._spent += time.perf_counter() - begun


class Results:
    """A pool's queue of results, seen by a worker."""

    def __init__(self, queue: Any, lines: Lines) -> None:
        self._queue, self._lines = queue, lines

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    def put(self, item: Any) -> None:
        self._lines.tell_soon()
        self._queue.put(item)
