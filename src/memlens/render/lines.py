"""A table of source lines as text, in the columns that memory_profiler made familiar, and as HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from html import escape

from memlens.model.lines import LineRow, LineTable
from memlens.units import format_mib

LEFT = 3  # kinds of tensors that are listed for a line
Cell = Callable[[LineRow], int | None]
Say = Callable[[int | None, int], str]


def mib(value: int | None, precision: int) -> str:
    return "" if value is None else format_mib(value, precision=precision, grouped=False)


def count(value: int | None, precision: int) -> str:
    return "" if value is None else f"{value:+d}"


# title, what it shows, is it always there, as what. They stand between Occurrences and Line Contents, so
# whatever reads the first four columns of memory_profiler's table reads ours.
COLUMNS: tuple[tuple[str, Cell, bool, Say], ...] = (
    ("Peak", lambda row: row.peak_bytes, True, mib),
    ("Python net", lambda row: row.python_increment_bytes, False, mib),
    ("Python peak", lambda row: row.python_peak_bytes, False, mib),
    ("GPU usage", lambda row: row.gpu_usage_bytes, False, mib),
    ("GPU net", lambda row: row.gpu_increment_bytes, False, mib),
    ("GPU peak", lambda row: row.gpu_peak_bytes, False, mib),
    ("GPU reserved", lambda row: row.gpu_reserved_bytes, False, mib),
    ("GPU tensors", lambda row: row.gpu_tensors, False, count),
)


def text(table: LineTable, *, precision: int = 1, classic: bool = False) -> str:
    """One function's table. `classic` leaves out every column that memory_profiler does not have."""
    columns = [] if classic else columns_of(table)
    header = f"{'Line #':>6} {'Mem usage':>12} {'Increment':>12}  {'Occurrences':>10} "
    header += "".join(f" {title:>12}" for title, _, _ in columns) + "  Line Contents"
    lines = [f"Filename: {table.file}", "", header, "=" * len(header)]
    for row in table.rows:
        cells = [mib(value, precision) for value in (row.usage_bytes, row.increment_bytes)]
        more = "".join(f" {say(cell(row), precision):>12}" for _, cell, say in columns)
        times = str(row.occurrences) if row.occurrences else ""
        line = f"{row.line:>6} {cells[0]:>12} {cells[1]:>12}  {times:>10} {more}  {row.source}"
        lines.append(line.rstrip())
    lines += ["", *([] if classic else notes(table))]
    return "\n".join(lines) + "\n"


def report(tables: Iterable[LineTable], *, precision: int = 1, classic: bool = False) -> str:
    """Several tables, one below the other."""
    return "\n".join(text(table, precision=precision, classic=classic) for table in tables)


def columns_of(table: LineTable) -> list[tuple[str, Cell, Say]]:
    """The columns that this table has something to say in."""
    return [
        (title if title != "Peak" or table.peaks_are_exact else "Peak (>=)", cell, say)
        for title, cell, always, say in COLUMNS
        if always or any(cell(row) is not None for row in table.rows)
    ]


def notes(table: LineTable) -> list[str]:
    """What the reader should know about the figures; nothing where they are plain."""
    lines = []
    if table.children:
        lines.append(
            f"In {table.children} child processes: occurrences and increments are sums, usage and peaks the "
            "largest of one."
            if table.children > 1
            else "In a child process."
        )
    if not table.peaks_are_exact:
        lines.append("Peaks are the highest of the samples taken: at least that much.")
    if table.lines_read < table.lines_run:
        lines.append(
            f"Memory was read after {table.lines_read:,} of {table.lines_run:,} lines; the others ran within "
            "10 us of a reading, where lines had changed nothing before."
        )
    if table.gpu_note:
        lines.append(f"GPU: n/a: {table.gpu_note}.")
    lines += left_behind(table)
    return [*lines, ""] if lines else []


def left_behind(table: LineTable) -> list[str]:
    """The tensors that each line left alive on the GPU, the largest first."""
    rows = [row for row in table.rows if row.gpu_left]
    lines = ["Left alive on the GPU when the line ended:"] if rows else []
    for row in rows:
        shown = [
            f"{left.number} * {left.shape} {left.dtype} ({left.kind}, {format_mib(left.bytes)})"
            for left in row.gpu_left[:LEFT]
        ]
        more = f" and {len(row.gpu_left) - LEFT} more kinds" if len(row.gpu_left) > LEFT else ""
        lines.append(f"{row.line:>6}  {', '.join(shown)}{more}")
    return lines


def html(table: LineTable, *, precision: int = 1) -> str:
    """The table for a notebook, with a bar for each line's share of the largest peak."""
    columns = columns_of(table)
    titles = ["Line #", "Mem usage", "Increment", "Occurrences", *(title for title, _, _ in columns), "Line"]
    largest = max((row.peak_bytes or 0 for row in table.rows), default=0) or 1
    body = []
    for row in table.rows:
        cells = [str(row.line), mib(row.usage_bytes, precision), mib(row.increment_bytes, precision)]
        cells += [str(row.occurrences or ""), *(say(cell(row), precision) for _, cell, say in columns)]
        share = 100 * (row.peak_bytes or 0) // largest
        bar = f"background:linear-gradient(90deg,rgba(220,120,40,.25) {share}%,transparent {share}%)"
        numbers = "".join(f'<td style="text-align:right;white-space:nowrap">{cell}</td>' for cell in cells)
        source = f'<code style="white-space:pre">{escape(row.source)}</code>'
        body.append(f'<tr>{numbers}<td style="text-align:left;{bar}">{source}</td></tr>')
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    paragraphs = "".join(f"<p>{escape(note)}</p>" for note in notes(table) if note)
    caption = f"{escape(table.function)} ({escape(table.file)}:{table.first_line})"
    return (
        f"<table><caption>{caption}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{''.join(body)}</tbody></table>{paragraphs}"
    )
