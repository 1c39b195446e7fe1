"""A `Summary` as an HTML table for notebooks: self-contained, everything in it escaped."""

from __future__ import annotations

from html import escape

from memlens.render.summaries.layers import CELLS, LEFT, label, notes, totals_lines
from memlens.summaries.summary import Summary
from memlens.summaries.view import COLUMNS, DEFAULT_COLUMNS, DEFAULT_DEPTH, fold

_CELL = "padding:1px 8px;white-space:nowrap;text-align:"


def to_html(summary: Summary, *, depth: int = DEFAULT_DEPTH, columns: tuple[str, ...] = ()) -> str:
    """The table with the tree as indentation, then the totals."""
    names = columns or DEFAULT_COLUMNS
    head = "".join(_cell("th", COLUMNS[name], name) for name in names)
    lines = [f"<tr>{_cell('th', 'Layer', 'dtype')}{head}</tr>"]
    numbers: dict[int, int] = {}
    for row in fold(summary.rows, depth):
        numbers[row.depth] = numbers.get(row.depth, 0) + 1
        name = escape(label(row, numbers[row.depth], {"var_names", "depth"}))
        first = f'<td style="{_CELL}left;padding-left:{8 + 16 * row.depth}px">{name}</td>'
        cells = "".join(_cell("td", CELLS[column](row, summary.totals), column) for column in names)
        lines.append(f"<tr>{first}{cells}</tr>")
    totals = "<br>".join(escape(line) for line in (*totals_lines(summary), *notes(summary)))
    return f'<table style="font-size:90%">{"".join(lines)}</table><p style="font-size:90%">{totals}</p>'


def _cell(tag: str, text: str, column: str) -> str:
    side = "left" if column in LEFT else "right"
    return f'<{tag} style="{_CELL}{side}">{escape(text)}</{tag}>'
