"""memory_profiler's names, so that `from memory_profiler import ...` only changes the module's name.

>>> from memlens.compat.memory_profiler import memory_usage
>>> len(memory_usage(-1, interval=0.01, timeout=0.03))
3
"""

from __future__ import annotations

import functools
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import memlens
from memlens.measure.lines import LineProfiler as _LineProfiler
from memlens.measure.memit import MemitResult
from memlens.measure.meters import meter
from memlens.measure.rss import own_rss_bytes
from memlens.measure.usage import memory_usage
from memlens.render import lines as render
from memlens.units import MIB

__all__ = [
    "LineProfiler",
    "LogFile",
    "MemitResult",
    "TimeStamper",
    "choose_backend",
    "memory_usage",
    "profile",
    "show_results",
]

profile = memlens.profile


class LineProfiler(_LineProfiler):
    """memory_profiler's constructor and method names. `max_mem` is the MiB above which a debugger starts."""

    def __init__(
        self, backend: str = "psutil", include_children: bool = False, max_mem: float | None = None
    ) -> None:
        if include_children or max_mem is not None:
            raise memlens.MemlensError(
                "a line profile counts this process alone, and starts no debugger",
                hint="`memory_usage(include_children=True)` adds the children up, `memlens run` draws each",
            )
        super().__init__(backend=backend)

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        self.add_function(function)
        return self.wrap_function(function)

    def wrap_function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with the profiler on while it runs."""

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return self.runcall(function, *args, **kwargs)

        return call

    enable_by_count = _LineProfiler.enable
    disable_by_count = _LineProfiler.disable


def show_results(prof: _LineProfiler, stream: Any = None, precision: int = 1) -> None:
    """Print a profiler's tables to `stream`, standard output if None."""
    for table in prof.tables():
        (stream or sys.stdout).write(render.text(table, precision=precision) + "\n")


def choose_backend(new_backend: str | None = None) -> str:
    """The name of the backend that memlens uses for one of memory_profiler's; an error for an unknown one."""
    return meter(new_backend).name


class TimeStamper:
    """When functions and blocks began and ended, and the memory at both moments.

    `functions` maps each to a list of [MiB, time] at the start and at the end.
    """

    def __init__(self, backend: str = "psutil", include_children: bool = False) -> None:
        self.backend, self.include_children = backend, include_children
        self.functions: dict[Any, list[list[tuple[float, float]]]] = {}

    def __call__(self, func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self.timestamp(func):
                return func(*args, **kwargs)

        return call

    @contextmanager
    def timestamp(self, name: Any = "<block>") -> Iterator[None]:
        """Label a block."""
        begin = (own_rss_bytes() / MIB, time.time())
        try:
            yield
        finally:
            end = (own_rss_bytes() / MIB, time.time())
            self.functions.setdefault(name, []).append([begin, end])

    def show_results(self, stream: Any = None) -> None:
        """One line for each, as mprof's files have them."""
        for name, spans in self.functions.items():
            label = f"{name.__module__}.{name.__name__}" if callable(name) else name
            for (begin, begun), (end, ended) in spans:
                (stream or sys.stdout).write(f"FUNC {label} {begin:.4f} {begun:.4f} {end:.4f} {ended:.4f}\n")


class LogFile:
    """A file-like object for `profile(stream=...)` that writes to a logger.

    With `reportIncrementFlag`, only lines whose increment is not zero.
    """

    def __init__(self, name: str | None = None, reportIncrementFlag: bool = False) -> None:
        self.logger = logging.getLogger(name or "memlens.lines")
        self.reportIncrementFlag = reportIncrementFlag

    def write(self, msg: str) -> None:
        for line in msg.splitlines():
            words = line.split()
            if not self.reportIncrementFlag or (
                len(words) > 4 and words[2] == "MiB" == words[4] and float(words[3]) != 0
            ):
                self.logger.info(line)

    def flush(self) -> None:
        """Handlers flush themselves."""
