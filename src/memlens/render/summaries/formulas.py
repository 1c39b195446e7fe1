"""How every number of a `Summary` is computed, as text."""

from __future__ import annotations

from memlens.render.summaries.layers import mark, notes, shapes, totals_lines, wrap_lines
from memlens.summaries.rows import Row
from memlens.summaries.summary import Summary
from memlens.units import format_bytes, format_count

_WHAT = {"params": "params", "macs": "mult-adds", "output": "output", "kept": "kept"}


def to_formulas(summary: Summary, width: int | None = None) -> str:
    """How every number of every row is computed, a block a row, then the totals."""
    blocks = []
    for row in summary.rows:
        if row.formulas:
            name = f"{row.path} ({row.type}){mark(row)}" if row.path else row.type
            blocks.append(f"{name}  {shapes(row.output_shapes)}")
            blocks += (f"  {line}" for line in formula_lines(row))
    return "\n".join(wrap_lines([*blocks, "", *totals_lines(summary), *notes(summary)], width, indent=12))


def formula_lines(row: Row) -> list[str]:
    """`params   C_in × C_out × K × K + C_out = 3 × 64 × 3 × 3 + 64 = 1,792`."""
    lines = []
    for formula in row.formulas:
        result = format_count(formula.result)
        if formula.what in ("output", "kept"):
            result += f" B = {format_bytes(formula.result)}"
        lines.append(f"{_WHAT[formula.what]:<10}{formula.symbols} = {formula.values} = {result}")
    return lines
