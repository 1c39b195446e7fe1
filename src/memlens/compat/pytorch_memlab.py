"""What users of pytorch_memlab type: `LineProfiler(*functions, target_gpu=0)`, `profile`, `MemReporter`.

from memlens.compat.pytorch_memlab import LineProfiler, MemReporter
"""

from __future__ import annotations

import atexit
import functools
import sys
from collections.abc import Callable, Sequence
from html import escape
from types import CodeType
from typing import Any, Self

from memlens.errors import UsageError
from memlens.integrations.reporter import MemReporter
from memlens.measurement.lines import profiler
from memlens.measurement.lines.frames import Row, Table
from memlens.measurement.lines.tables import source_lines
from memlens.messages import Writable
from memlens.units import format_mib

__all__ = [
    "DEFAULT_COLUMNS",
    "LineProfiler",
    "MemReporter",
    "clear_global_line_profiler",
    "profile",
    "profile_every",
    "set_target_gpu",
]

DEFAULT_COLUMNS = ("active_bytes.all.peak", "reserved_bytes.all.peak")


class LineProfiler:
    """Counters of `torch.cuda.memory_stats` line by line, of one card, real or simulated.

    `columns` are the fields to follow, such as `allocated_bytes.all.current` (after the line),
    `.peak` (the highest inside it), `.allocated` or `.freed` (what it added). The peak counters that the
    user reads keep their values.
    """

    def __init__(
        self,
        *functions: Callable[..., Any],
        target_gpu: int = 0,
        columns: Sequence[str] = DEFAULT_COLUMNS,
    ) -> None:
        self.target_gpu = target_gpu
        self.columns = tuple(columns)
        self._functions = list(functions)
        self._profiler: profiler.LineProfiler | None = None

    def add_function(self, function: Callable[..., Any]) -> None:
        """Watch one function more."""
        self._functions.append(function)
        if self._profiler is not None:
            self._profiler.add_function(function)

    def enable(self) -> None:
        """Raises UsageError where no such card answers."""
        if self._profiler is None:
            self._profiler = profiler.LineProfiler(
                *self._functions, more=_meters(self.target_gpu, self.columns)
            )
        self._profiler.enable()

    def disable(self) -> None:
        if self._profiler is not None:
            self._profiler.disable()

    def clear(self) -> None:
        """Forget what was measured; the functions stay."""
        self.disable()
        self._profiler = None

    def __enter__(self) -> Self:
        self.enable()
        return self

    def __exit__(self, *exception: object) -> None:
        self.disable()

    def display(
        self, func: Callable[..., Any] | None = None, columns: Sequence[str] | None = None
    ) -> LineRecords:
        """The tables: a notebook shows what this returns, a script prints them at once."""
        records = self._records(func, columns)
        if not hasattr(sys, "ps1") and "IPython" not in sys.modules:
            print(records)
        return records

    def _records(
        self, func: Callable[..., Any] | None = None, columns: Sequence[str] | None = None
    ) -> LineRecords:
        shown = tuple(columns or self.columns)
        unknown = [column for column in shown if _counter(column) not in map(_counter, self.columns)]
        if unknown:
            raise UsageError(
                f"column {unknown[0]!r} was not followed; these were: {', '.join(self.columns)}",
                hint=f"LineProfiler(..., columns={list(shown)})",
            )
        codes = self._profiler.codes if self._profiler is not None else {}
        wanted = profiler.code_of(func) if func is not None else None
        tables = {code: rows for code, rows in codes.items() if wanted in (None, code) and rows}
        return LineRecords(tables, shown)

    def print_stats(
        self,
        func: Callable[..., Any] | None = None,
        columns: Sequence[str] | None = None,
        stream: Writable | None = None,
    ) -> None:
        """Write the tables as text, to standard output by default."""
        (stream or sys.stdout).write(f"{self._records(func, columns)}\n")


class LineRecords:
    """Measured functions and the columns to show of them."""

    def __init__(self, tables: dict[CodeType, list[Table]], columns: tuple[str, ...]) -> None:
        self.tables, self.columns = tables, columns

    def rows(self, code: CodeType) -> list[tuple[int, str, list[int | None]]]:
        """Line number, source and one figure a column; None where the line did not run."""
        by_counter = {table.gauge.meter.name: table for table in self.tables[code]}
        lines = []
        for number, source in source_lines(code, set(self.tables[code][0].rows)):
            figures = [
                _figure(by_counter[_counter(column)].rows.get(number), column) for column in self.columns
            ]
            lines.append((number, source, figures))
        return lines

    def __str__(self) -> str:
        parts = []
        for code in self.tables:
            heads = [column.split(".") for column in self.columns]
            width = max(14, *(len(part) + 1 for head in heads for part in head))
            parts.append(f"## {code.co_qualname}\n")
            for level in range(max(map(len, heads))):
                cells = "".join(f"{head[level] if level < len(head) else '':>{width}}" for head in heads)
                parts.append(f"{cells}  {'line  code' if not level else ''}".rstrip())
            for number, source, figures in self.rows(code):
                cells = "".join(
                    f"{_text(figure, column):>{width}}"
                    for figure, column in zip(figures, self.columns, strict=True)
                )
                parts.append(f"{cells}  {number:>4}  {source}".rstrip())
            parts.append("")
        return "\n".join(parts) or "none of the functions ran"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        tables = []
        for code in self.tables:
            head = "".join(f"<th>{escape(title)}</th>" for title in (*self.columns, "line", "code"))
            body = "".join(
                "<tr>"
                + "".join(
                    f'<td style="text-align:right">{_text(figure, column)}</td>'
                    for figure, column in zip(figures, self.columns, strict=True)
                )
                + f'<td>{number}</td><td style="text-align:left"><code>{escape(source)}</code></td></tr>'
                for number, source, figures in self.rows(code)
            )
            tables.append(f"<h3>{escape(code.co_qualname)}</h3><table><tr>{head}</tr>{body}</table>")
        return "".join(tables) or "<p>none of the functions ran</p>"


def _counter(column: str) -> str:
    """The counter behind a field: `active_bytes.all` of its `.peak` and `.current`."""
    stem, _, last = column.rpartition(".")
    return stem if last in ("peak", "current") else column


def _figure(row: Row | None, column: str) -> int | None:
    if row is None:
        return None
    last = column.rpartition(".")[2]
    return row.top if last == "peak" else row.usage if last == "current" else row.increment


def _text(figure: int | None, column: str) -> str:
    if figure is None:
        return ""
    return format_mib(figure) if "bytes" in column else f"{figure:,}"


def _meters(gpu: int, columns: Sequence[str]) -> list[Any]:
    from memlens.measurement.lines.gpu_meter import counter_meter, gpu_meters

    _, reason = gpu_meters(gpu)
    if reason:
        raise UsageError(
            f"LineProfiler(target_gpu={gpu}) has nothing to read: {reason}",
            hint="memlens.simulate(gpu) makes a card that is not there answer",
        )
    return [counter_meter(gpu, counter) for counter in dict.fromkeys(map(_counter, columns))]


# the module's own profiler, as `@profile` uses it ------------------------------------------------------

_global = LineProfiler()


def set_target_gpu(gpu: int) -> None:
    """The card that `profile` and `profile_every` read from now on."""
    _global.clear()
    _global.target_gpu = gpu


def clear_global_line_profiler() -> None:
    """Forget what `profile` measured so far."""
    _global.clear()


def profile(func: Callable[..., Any], columns: Sequence[str] = DEFAULT_COLUMNS) -> Callable[..., Any]:
    """Measure every call of a function; the table is printed when the program ends."""
    profiler = LineProfiler(func, target_gpu=_global.target_gpu, columns=columns)
    atexit.register(profiler.print_stats, func)

    @functools.wraps(func)
    def call(*args: Any, **kwargs: Any) -> Any:
        with profiler:
            return func(*args, **kwargs)

    call.line_profiler = profiler  # type: ignore[attr-defined]
    return call


def profile_every(
    output_interval: int = 1, enable: bool = True, columns: Sequence[str] = DEFAULT_COLUMNS
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Measure a function and print its table after every `output_interval` calls."""

    def decorate(func: Callable[..., Any]) -> Callable[..., Any]:
        if not enable:
            return func
        profiler = LineProfiler(func, target_gpu=_global.target_gpu, columns=columns)
        calls = 0

        @functools.wraps(func)
        def call(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            with profiler:
                result = func(*args, **kwargs)
            calls += 1
            if calls % output_interval == 0:
                profiler.print_stats(func)
                profiler.clear()
            return result

        return call

    return decorate
