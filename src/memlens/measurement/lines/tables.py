"""From what the tracer counted to a `LineTable` with its source lines."""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Iterable, Sequence
from dataclasses import replace
from types import CodeType
from typing import Any

from memlens.measurement.lines.frames import Row, Table
from memlens.model.lines import Left, LineRow, LineTable
from memlens.model.site import is_cell
from memlens.model.tensors import LiveTensor, group

# meter -> which field of a row becomes which field of a `LineRow`
EXTRA: dict[str, tuple[tuple[str, str], ...]] = {
    "tracemalloc": (("increment", "python_increment_bytes"), ("peak", "python_peak_bytes")),
    "gpu allocated": (
        ("usage", "gpu_usage_bytes"),
        ("increment", "gpu_increment_bytes"),
        ("peak", "gpu_peak_bytes"),
    ),
    "gpu reserved": (("usage", "gpu_reserved_bytes"),),
    "gpu tensors": (("increment", "gpu_tensors"),),
    "gpu left": (),
}


def line_table(tables: Sequence[Table], gpu_note: str = "") -> LineTable:
    """One function's table: `tables[0]` is the memory asked for, the others fill the extra columns."""
    main, extra = tables[0], [table for table in tables[1:] if table.gauge.meter.name in EXTRA]
    code = main.code
    rows = []
    for number, source in source_lines(code, set(main.rows)):
        row = main.rows.get(number)
        if number == code.co_firstlineno and row is None:
            rows.append(LineRow(number, source, main.calls, main.start, main.start))
        else:
            rows.append(line_row(number, source, row, extra))
    return LineTable(
        file=code.co_filename,
        function=code.co_qualname,
        first_line=code.co_firstlineno,
        calls=main.calls,
        start_bytes=main.start,
        rows=tuple(rows),
        backend=main.gauge.meter.name,
        peaks_are_exact=main.gauge.meter.exact,
        lines_run=(run := sum(row.count for row in main.rows.values())),
        lines_read=min(main.reads, run),
        gpu_note=gpu_note,
    )


def joined_by_cell(tables: Iterable[LineTable]) -> list[LineTable]:
    """One table for each cell of a notebook, whose statements IPython compiles one by one."""
    joined: dict[Any, LineTable] = {}
    for number, table in enumerate(tables):
        is_statement = is_cell(table.file) and table.function == "<module>"
        key = table.file if is_statement else number
        before = joined.get(key)
        if before is None:
            joined[key] = table
            continue
        # a line that ran inside another of its number, as `%time` has it, is in that one's figures
        rows = {row.line: row for row in (*table.rows, *before.rows)}
        joined[key] = replace(
            before,
            rows=tuple(rows[line] for line in sorted(rows)),
            lines_run=before.lines_run + table.lines_run,
            lines_read=before.lines_read + table.lines_read,
        )
    return list(joined.values())


def line_row(number: int, source: str, row: Row | None, extra: Sequence[Table]) -> LineRow:
    if row is None:
        return LineRow(number, source)
    more: dict[str, int] = {}
    left: list[LiveTensor] = []
    for table in extra:
        row_of_line = table.rows.get(number)
        if row_of_line is not None:
            more |= {field: getattr(row_of_line, part) for part, field in EXTRA[table.gauge.meter.name]}
            left += getattr(row_of_line, "left", ())
    return LineRow(
        line=number,
        source=source,
        occurrences=row.count,
        usage_bytes=row.usage,
        increment_bytes=row.increment,
        peak_bytes=row.peak,
        gpu_left=tuple(Left(g.count, g.shape, g.dtype, g.kind, g.bytes) for g in group(left)),
        **more,
    )


def source_lines(code: CodeType, ran: set[int]) -> list[tuple[int, str]]:
    """The function's lines with their numbers; from notebook cells too, which are in `linecache`.

    Where the source is not to be had, the lines that ran, without text.
    """
    lines = linecache.getlines(code.co_filename)
    first = code.co_firstlineno
    if not lines or first > len(lines):
        return [(number, "") for number in sorted(ran | {first})]
    if code.co_name == "<module>":
        own = {line for _, _, line in code.co_lines() if line} | ran
        return [(number, lines[number - 1].rstrip()) for number in sorted(own) if number <= len(lines)]
    block = inspect.getblock(lines[first - 1 :])
    last = max([first + len(block) - 1, *ran])
    return [(number, lines[number - 1].rstrip()) for number in range(first, min(last, len(lines)) + 1)]
