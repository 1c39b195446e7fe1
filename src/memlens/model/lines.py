"""Memory by source line, as data: what a line profiler measured in one function.

Rows are plain values, so a table can be stored in a record, sent as JSON and drawn anywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, NamedTuple, Self


class Left(NamedTuple):
    """Tensors of one shape, dtype and kind that a line left alive on the GPU."""

    number: int
    shape: tuple[int, ...]
    dtype: str
    kind: str
    bytes: int


@dataclass(frozen=True, slots=True)
class LineRow:
    """One source line.

    `usage_bytes` is the most memory in use when the line ended, `increment_bytes` what all its executions
    added (net, so a line that frees is negative), `peak_bytes` the most that one execution had above what
    was there when it began, whether or not it was freed before the line ended. All are None where the line
    did not run. The `python_*` pair says the same of Python's own allocations, `gpu_*` of what PyTorch
    allocated on a CUDA device; `gpu_reserved_bytes` is the most it had reserved when the line ended,
    `gpu_tensors` how many more allocations were alive after all executions than before, and `gpu_left` which
    tensors were there when it ended that were not when it began.
    """

    line: int
    source: str = ""
    occurrences: int = 0
    usage_bytes: int | None = None
    increment_bytes: int | None = None
    peak_bytes: int | None = None
    python_increment_bytes: int | None = None
    python_peak_bytes: int | None = None
    gpu_increment_bytes: int | None = None
    gpu_peak_bytes: int | None = None
    gpu_usage_bytes: int | None = None
    gpu_reserved_bytes: int | None = None
    gpu_tensors: int | None = None
    gpu_left: tuple[Left, ...] = ()


@dataclass(frozen=True, slots=True)
class LineTable:
    """One function, line by line.

    The first row is the function's own line: its usage and increment are what was in use at the first call,
    its occurrences the number of calls. The increments of the other rows add up to last minus first, summed
    over the calls: `net_bytes`. `backend` names what was read (`rss`, `pss`, `uss` or `tracemalloc`). Where
    `peaks_are_exact` is false, a peak is the highest of the samples taken: at least that much. Memory was
    read after `lines_read` of the `lines_run` line executions. `gpu_note` says why GPU columns that were
    asked for are missing. `children` is how many child processes a table adds up; 0 is the program itself.
    """

    file: str
    function: str
    first_line: int
    calls: int
    start_bytes: int
    rows: tuple[LineRow, ...]
    backend: str = "rss"
    peaks_are_exact: bool = True
    lines_run: int = 0
    lines_read: int = 0
    gpu_note: str = ""
    children: int = 0

    @property
    def net_bytes(self) -> int:
        """What the function left behind: the sum of every row's increment but the first's."""
        return sum(row.increment_bytes or 0 for row in self.body)

    @property
    def body(self) -> tuple[LineRow, ...]:
        """The rows that ran, without the function's own line."""
        return tuple(row for row in self.rows if row.peak_bytes is not None)

    def row(self, line: int) -> LineRow:
        """The row of source line `line`; KeyError where the table has none."""
        for row in self.rows:
            if row.line == line:
                return row
        raise KeyError(line)

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON types; `from_dict` is the way back."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """A table from `to_dict`'s result.

        >>> table = LineTable("a.py", "f", 1, 1, 0, (LineRow(1), LineRow(2, "x = 1", 3)))
        >>> LineTable.from_dict(table.to_dict()) == table
        True
        """
        return cls(**{**data, "rows": tuple(_row(row) for row in data["rows"])})


def add_children(tables: Iterable[LineTable]) -> list[LineTable]:
    """One table for each function, of the tables that child processes have of it.

    Occurrences and increments are summed; usage and peaks are the largest of any one process, as these were
    not all at the same time.
    """
    tables_by_key: dict[tuple[object, ...], LineTable] = {}
    for table in tables:
        key = table.file, table.function, table.first_line, table.backend
        one = replace(table, children=table.children or 1)
        tables_by_key[key] = _add(tables_by_key[key], one) if key in tables_by_key else one
    return list(tables_by_key.values())


def _add(a: LineTable, b: LineTable) -> LineTable:
    rows = {row.line: row for row in a.rows}
    rows |= {row.line: _add_rows(rows[row.line], row) if row.line in rows else row for row in b.rows}
    sums = {
        name: getattr(a, name) + getattr(b, name) for name in ("calls", "lines_run", "lines_read", "children")
    }
    exact = a.peaks_are_exact and b.peaks_are_exact
    return replace(a, rows=tuple(rows[line] for line in sorted(rows)), peaks_are_exact=exact, **sums)


def _add_rows(a: LineRow, b: LineRow) -> LineRow:
    together: dict[str, Any] = {
        "occurrences": a.occurrences + b.occurrences,
        "gpu_left": a.gpu_left + b.gpu_left,
    }
    for field in fields(LineRow):
        values = [value for value in (getattr(a, field.name), getattr(b, field.name)) if value is not None]
        if field.name.endswith(("_bytes", "_tensors")) and values:
            total = "increment" in field.name or field.name == "gpu_tensors"
            together[field.name] = sum(values) if total else max(values)
    return replace(a, **together)


def _row(data: Mapping[str, Any]) -> LineRow:
    left = (Left(number, tuple(shape), *rest) for number, shape, *rest in data.get("gpu_left", ()))
    return LineRow(**{**data, "gpu_left": tuple(left)})
