"""What is shown of a summary: rows folded to a depth, sorted, and the columns that people name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from memlens.errors import UsageError
from memlens.summaries.rows import SUMMED, Row
from memlens.summaries.summary import Summary

# torchinfo's words first, then what it does not have
COLUMNS: dict[str, str] = {
    "input_size": "Input Shape",
    "output_size": "Output Shape",
    "num_params": "Param #",
    "params_percent": "Param %",
    "kernel_size": "Kernel Shape",
    "groups": "Groups",
    "mult_adds": "Mult-Adds",
    "trainable": "Trainable",
    "calls": "Calls",
    "dtype": "Dtype",
    "param_bytes": "Params",
    "buffer_bytes": "Buffers",
    "output_bytes": "Output",
    "kept_bytes": "Kept",
    "kept_percent": "Kept %",
    "transient_bytes": "Transient",
}
# shown where nothing is asked for: the first ones always, the others as the width allows
DEFAULT_COLUMNS = ("output_size", "num_params", "kept_bytes", "mult_adds", "output_bytes", "transient_bytes",
                   "param_bytes", "buffer_bytes", "calls")  # fmt: skip
DEFAULT_DEPTH = 3
# what a column is sorted by, largest first
SORT_KEYS = {
    "num_params": "params",
    "params_percent": "params",
    "mult_adds": "macs",
    "kept_percent": "kept_bytes",
} | {name: name for name in ("calls", "param_bytes", "buffer_bytes", "output_bytes", "kept_bytes",
                             "transient_bytes", "params", "macs")}  # fmt: skip


def check_columns(names: Iterable[str]) -> tuple[str, ...]:
    """`names` as columns; torchinfo's words and the contract's are both understood.

    >>> check_columns(["output_size", "macs"])
    ('output_size', 'mult_adds')
    """
    synonyms = {"output_shapes": "output_size", "params": "num_params", "macs": "mult_adds"}
    columns = tuple(synonyms.get(str(name), str(name)) for name in names)
    for name in columns:
        if name not in COLUMNS:
            raise UsageError(f"there is no column {name!r}", hint=f"columns are {', '.join(COLUMNS)}")
    return columns


def check_sort(name: str) -> str:
    if name not in SORT_KEYS:
        raise UsageError(f"cannot sort by {name!r}", hint=f"sort by {', '.join(SORT_KEYS)}")
    return SORT_KEYS[name]


def fold(rows: Iterable[Row], depth: int) -> tuple[Row, ...]:
    """The rows down to `depth`; what is below is added to its ancestor there, so that the sums stay.

    The transient peak of a folded row is that of all it covers together, which is less than their sum.
    """
    shown: list[Row] = []
    for row in rows:
        if row.depth <= depth:
            shown.append(
                row if row.depth < depth else replace(row, transient_bytes=row.transient_below_bytes)
            )
            continue
        above = shown[-1]
        sums = {name: getattr(above, name) + getattr(row, name) for name in (*SUMMED, "trainable_params")}
        shown[-1] = replace(above, **sums, kept=above.kept + row.kept)
    return tuple(shown)


def ordered(rows: Iterable[Row], sort: str) -> tuple[Row, ...]:
    """The rows that have any of it, largest first."""
    key = check_sort(sort)
    return tuple(sorted((r for r in rows if getattr(r, key)), key=lambda row: -getattr(row, key)))


def narrowed(summary: Summary, depth: int | None, sort: str | None) -> Summary:
    """The same summary with its rows folded and sorted, where that was asked for; its totals stay."""
    rows = summary.rows if depth is None else fold(summary.rows, depth)
    return replace(summary, rows=rows if sort is None else ordered(rows, sort))
