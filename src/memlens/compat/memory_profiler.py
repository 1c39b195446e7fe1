"""memory_profiler's names, so that `from memory_profiler import ...` only changes the module's name.

>>> from memlens.compat.memory_profiler import memory_usage
>>> len(memory_usage(-1, interval=0.01, timeout=0.03))
3
"""

from __future__ import annotations

import functools
import inspect
import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import memlens
from memlens.measurement.host.memit import MemitResult
from memlens.measurement.host.memory_usage import memory_usage
from memlens.measurement.host.meters import meter
from memlens.measurement.lines.break_above import StopAbove
from memlens.measurement.lines.profiler import LineProfiler as _LineProfiler
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


class LineProfiler(_LineProfiler):
    """memory_profiler's constructor and method names.

    With `max_mem`, pdb opens where a watched function has more MiB in use, and no lines are measured.
    """

    def __init__(
        self, backend: str = "psutil", include_children: bool = False, max_mem: float | None = None
    ) -> None:
        self._stop = None if max_mem is None else StopAbove(round(max_mem * MIB), backend)
        super().__init__(backend=backend, include_children=include_children)

    def __call__(self, func: Callable[..., Any] | None = None, precision: int = 1) -> Any:
        if func is None:
            return self
        self.add_function(func)
        return self.wrap_function(func)

    def add_function(self, function: Callable[..., Any]) -> None:
        """Watch a function."""
        if self._stop is None:
            super().add_function(function)
        else:
            self._stop.add_function(function)

    def enable(self) -> None:
        """Switch on."""
        super().enable() if self._stop is None else self._stop.enable()

    def disable(self) -> None:
        """Switch off."""
        super().disable() if self._stop is None else self._stop.disable()

    def wrap_function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, with the profiler on while it runs; a coroutine function stays one."""
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def coroutine(*args: Any, **kwargs: Any) -> Any:
                with self:
                    return await function(*args, **kwargs)

            return coroutine

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return self.runcall(function, *args, **kwargs)

        return call

    enable_by_count = enable
    disable_by_count = disable

    @property
    def code_map(self) -> dict[str, list[tuple[int, tuple[float, float, int] | None]]]:
        """By file: each line with what it added, what was then in use (MiB), and how often it ran."""
        lines: dict[str, list[tuple[int, tuple[float, float, int] | None]]] = {}
        for table in self.tables():
            for row in table.rows:
                read = row.usage_bytes is not None and row.increment_bytes is not None
                figures = (
                    ((row.increment_bytes or 0) / MIB, (row.usage_bytes or 0) / MIB, row.occurrences)
                    if read
                    else None
                )
                lines.setdefault(table.file, []).append((row.line, figures))
        return lines


class _Profile:
    """memory_profiler's `profile`: a decorator, and a LineProfiler that a program switches by hand.

    `with profile:` measures the functions that were added to it; `show_results(profile)` prints them.
    """

    def __init__(self) -> None:
        self._profiler: LineProfiler | None = None

    def __call__(self, func: Any = None, *args: Any, **options: Any) -> Any:
        return memlens.profile(func, *args, **options)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self._profiler is None:
            self._profiler = LineProfiler()
        return getattr(self._profiler, name)

    def __enter__(self) -> _Profile:
        self.enable_by_count()
        return self

    def __exit__(self, *exception: object) -> None:
        self.disable_by_count()


profile = _Profile()


def show_results(prof: _LineProfiler | _Profile, stream: Any = None, precision: int = 1) -> None:
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

    def _now(self) -> tuple[float, float]:
        (size,) = memory_usage(-1, include_children=self.include_children, backend=self.backend)
        return size, time.time()

    @contextmanager
    def timestamp(self, name: Any = "<block>") -> Iterator[None]:
        """Label a block."""
        begin = self._now()
        try:
            yield
        finally:
            end = self._now()
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
