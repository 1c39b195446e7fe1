"""Memory line by line: which functions to watch, for how long, and the tables that come out.

>>> def build(n: int) -> int:
...     numbers = list(range(n))
...     return sum(numbers)
>>> profiler = LineProfiler(build)
>>> with profiler:
...     total = build(100_000)
>>> [table.function for table in profiler.tables()]
['build']
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from threading import get_ident
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Self

from memlens.errors import UsageError
from memlens.measurement.host.meters import Meter, meter
from memlens.measurement.host.with_children import FamilyMeter
from memlens.measurement.lines.frames import Gauge, Table
from memlens.measurement.lines.tables import joined_by_cell, line_table
from memlens.measurement.lines.tracing import FRAMES, TRACER
from memlens.model.lines import LineTable
from memlens.model.site import is_cell


class LineProfiler:
    """Measures functions line by line while it is switched on, on every thread.

    `functions` are what `add_function` takes; `files` are paths whose every function and module level is
    watched when it first runs. `backend` is rss (the default), pss, uss, tracemalloc or memory_profiler's
    name for it; `python_level` adds what Python's own allocators handed out, at tracemalloc's cost. `gpu`
    adds a CUDA device's columns, of the current device if True; where none answers the tables say so.
    `include_children` adds what the process's descendants hold. `more` are meters to read beside these.
    """

    def __init__(
        self,
        *functions: Callable[..., Any],
        files: Iterable[str | os.PathLike[str]] = (),
        backend: str | None = None,
        python_level: bool = False,
        gpu: bool | int = False,
        include_children: bool = False,
        more: Iterable[Meter] = (),
    ) -> None:
        self.meters: list[Meter]
        self.gpu_note: str
        self.meters, self.gpu_note = meters_for(backend, python_level, gpu, include_children, anew=True)
        self.meters += more
        self.files: frozenset[str] = frozenset(os.path.abspath(file) for file in files)
        self.codes: dict[CodeType, list[Table]] = {}
        self._gauges: list[Gauge] = []
        self._on = 0
        for function in functions:
            self.add_function(function)

    def add_function(self, function: Callable[..., Any]) -> None:
        """Watch a function, method, classmethod, staticmethod, partial, or anything that wraps one."""
        self.add_code(code_of(function))

    def add_code(self, code: CodeType, *, nested: bool = False) -> None:
        """Watch a code object; with `nested` also the functions and classes written inside it."""
        if code not in self.codes:
            self.codes[code] = []
            if self._on:
                self._attach(code)
                TRACER.watch([code])
        if nested:
            for constant in code.co_consts:
                if isinstance(constant, CodeType) and is_written_function(constant):
                    self.add_code(constant, nested=True)

    def add_module(self, module: ModuleType) -> None:
        """Watch every function and method that is written in a module."""
        for function in functions_in(module):
            self.add_function(function)

    def enable(self) -> None:
        """Switch on; counts, so that two users may switch the same profiler."""
        self._on += 1
        if self._on > 1:
            return
        self._gauges = [Gauge(meter) for meter in self.meters]
        for code in self.codes:
            self._attach(code)
        TRACER.watch(list(self.codes), self if self.files else None)
        TRACER.everywhere(True)

    def disable(self) -> None:
        """Switch off, when everybody who switched on has done so."""
        if not self._on:
            return
        self._on -= 1
        if self._on:
            return
        TRACER.everywhere(False)
        TRACER.unwatch(list(self.codes), self if self.files else None)
        for code, tables in self.codes.items():
            left = tuple(t for t in FRAMES.everywhere.get(code, ()) if t not in tables)
            FRAMES.everywhere[code] = left
            if not left:
                del FRAMES.everywhere[code]
        for gauge in self._gauges:
            gauge.close()

    def __enter__(self) -> Self:
        self.enable()
        return self

    def __exit__(self, *exception: object) -> None:
        self.disable()

    def runctx(self, statement: str, globals: dict[str, Any], locals: Mapping[str, Any] | None) -> Self:
        """Execute a statement with the profiler on."""
        with self:
            exec(statement, globals, locals)
        return self

    def runcall(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function with the profiler on and return what it returns."""
        with self:
            return function(*args, **kwargs)

    def tables(self) -> list[LineTable]:
        """One table per function that was called, in the order in which they were added or found."""
        return joined_by_cell(
            line_table(tables, self.gpu_note)
            for tables in self.codes.values()
            if any(table.calls for table in tables)
        )

    def _attach(self, code: CodeType) -> None:
        tables = self.codes[code]
        if tables:  # switched on again: the rows go on, read through the new gauges
            for table, gauge in zip(tables, self._gauges, strict=True):
                table.gauge = gauge
        else:
            tables.extend(Table(code, gauge) for gauge in self._gauges)
        FRAMES.everywhere[code] = FRAMES.everywhere.get(code, ()) + tuple(tables)

    def covers(self, file: str) -> bool:
        """Whether a file is watched whole; a notebook's cells are of its file."""
        place = os.path.abspath(file)
        return place in self.files or (is_cell(file) and place.rpartition(", ")[0] in self.files)

    def discover(self, code: CodeType) -> bool:
        """Called when a code object first runs: is it in one of our files? Then it is watched."""
        if code in self.codes or not self.covers(code.co_filename):
            return code in self.codes
        if not is_written_function(code):
            return False
        self.add_code(code)
        return True


class CallProfile:
    """One call of one function, line by line: what runs on a thread inside `step` counts, and nothing else.

    A coroutine or a generator is many steps.
    """

    def __init__(
        self,
        code: CodeType,
        backend: str | None = None,
        python_level: bool = False,
        gpu: bool | int = False,
        include_children: bool = False,
    ) -> None:
        self.code = code
        meters, self._gpu_note = meters_for(backend, python_level, gpu, include_children)
        self._gauges = [Gauge(meter) for meter in meters]
        self._tables = tuple(Table(code, gauge) for gauge in self._gauges)
        TRACER.watch([code])

    def step(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call `function`; the frames of the watched code that begin meanwhile belong to this profile."""
        thread = get_ident()
        before = FRAMES.expected.get(thread)
        FRAMES.expected[thread] = {**(before or {}), self.code: self._tables}
        try:
            with TRACER.thread():
                return function(*args, **kwargs)
        finally:
            if before is None:
                FRAMES.expected.pop(thread, None)
            else:
                FRAMES.expected[thread] = before

    def close(self) -> None:
        TRACER.unwatch([self.code])
        for gauge in self._gauges:
            gauge.close()

    def table(self) -> LineTable | None:
        """The table, or None where the function's code never ran (a cached result)."""
        return line_table(self._tables, self._gpu_note) if self._tables[0].calls else None


def meters_for(
    backend: str | None, python_level: bool, gpu: bool | int, include_children: bool, anew: bool = False
) -> tuple[list[Meter], str]:
    """What a profile reads: the memory asked for first; and why the GPU columns are missing, if they are."""
    meters, note = [FamilyMeter(meter(backend)) if include_children else meter(backend)], ""
    if python_level:
        meters.append(meter("tracemalloc"))
    if gpu is not False:
        try:
            from memlens.measurement.lines.gpu_meter import gpu_meters  # loads torch
        except ModuleNotFoundError:
            return meters, "torch is not installed"
        gpu_side, note = gpu_meters(gpu, anew)
        meters += gpu_side
    return meters, note


def is_profiled_here(code: CodeType) -> bool:
    """Whether a profile of this function is open on this thread: a recursive call belongs to it."""
    return code in FRAMES.expected.get(get_ident(), ())


def code_of(function: Any) -> CodeType:
    """The code that runs when `function` is called, through whatever wraps it."""
    seen = function
    for _ in range(100):
        if isinstance(seen, FunctionType) and not hasattr(seen, "__wrapped__"):
            return seen.__code__
        if isinstance(seen, functools.partial | functools.partialmethod):
            seen = seen.func
        elif isinstance(seen, property):
            seen = seen.fget
        elif isinstance(seen, MethodType | classmethod | staticmethod):
            seen = seen.__func__
        elif hasattr(seen, "__wrapped__"):
            seen = seen.__wrapped__
        elif isinstance(seen, functools.cached_property):
            seen = seen.func
        elif isinstance(seen, CodeType):
            return seen
        elif callable(seen) and not isinstance(seen, type) and is_python(type(seen).__call__):
            seen = type(seen).__call__
        else:
            break
    raise UsageError(
        f"{function!r} has no Python lines to profile",
        hint="give a function or method written in Python, or the class's methods one by one",
    )


def is_python(function: object) -> bool:
    return isinstance(inspect.unwrap(function) if callable(function) else function, FunctionType)


def is_written_function(code: CodeType) -> bool:
    """A `def`, a class body or a module; comprehensions and lambdas are part of the line they stand in."""
    return not code.co_name.startswith("<") or code.co_name == "<module>"


def functions_in(module: ModuleType) -> list[FunctionType]:
    """Every function and method that is written in a module."""
    functions: list[FunctionType] = []
    for value in list(vars(module).values()):
        members = list(vars(value).values()) if isinstance(value, type) else [value]
        for member in members:
            try:
                function = inspect.unwrap(getattr(member, "__func__", member))
            except (ValueError, AttributeError):
                continue
            if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                functions.append(function)
    return functions
