"""A `Summary` as text: the tree with its columns, then the totals."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable

from memlens.model import Assumption
from memlens.summaries.rows import Row, Totals
from memlens.summaries.summary import Summary
from memlens.summaries.view import COLUMNS, DEFAULT_COLUMNS, DEFAULT_DEPTH, fold, ordered
from memlens.units import format_bytes, format_count

NOTHING = "--"
GAP = "  "
NAME_SHARE = 0.4  # of the width, for a layer's name, before a column that was not asked for
NARROWEST_NAME = 20
LEFT = {"input_size", "output_size", "kernel_size", "trainable", "dtype"}


def to_text(
    summary: Summary,
    *,
    width: int | None = None,
    depth: int = DEFAULT_DEPTH,
    columns: tuple[str, ...] = (),
    sort: str | None = None,
    row_settings: Iterable[str] = ("var_names", "depth"),
) -> str:
    """The whole page for people. `width` None takes what the table needs."""
    settings = set(row_settings)
    rows = fold(summary.rows, depth)
    if "hide_recursive_layers" in settings:
        rows = tuple(row for row in rows if not (row.shared and row.calls))
    if sort is not None:
        rows = ordered(rows, sort)
        names = [full_label(row) for row in rows]
    else:
        names = tree(rows, settings)
    heading = "Layer" if sort else "Layer (type" + "".join(
        text for key, text in (("var_names", " (name)"), ("depth", ":depth-idx")) if key in settings
    ) + ")"  # fmt: skip
    cells = table_cells(rows, columns or DEFAULT_COLUMNS, summary.totals)
    lines = table(heading, names, cells, width, fixed=bool(columns))
    rule = "=" * max(map(len, lines))
    below = wrap_lines([*totals_lines(summary), rule, *notes(summary)], width)
    return "\n".join([rule, lines[0], rule, *lines[1:], rule, *below])


def full_label(row: Row) -> str:
    """`layer1.0.conv1 (Conv2d)`: a row by its whole path, where no tree shows it."""
    return f"{row.path} ({row.type})" if row.kind == "module" and row.path else row.path or row.type


# the tree --------------------------------------------------------------------------------------------------


def tree(rows: tuple[Row, ...], settings: set[str]) -> list[str]:
    """`├─Conv2d (conv1): 1-1` for every row, the last child of each parent with its corner."""
    ascii_only = "ascii_only" in settings
    through, tee, corner, blank = ("|  ", "+ ", "+ ", "   ") if ascii_only else ("│  ", "├─", "└─", "   ")
    last = last_children(rows)
    numbers: dict[int, int] = {}
    bars: list[str] = []  # for each depth above the row: a line that goes on, or nothing
    names = []
    for row, is_last in zip(rows, last, strict=True):
        numbers[row.depth] = numbers.get(row.depth, 0) + 1
        del bars[max(row.depth - 1, 0) :]
        branch = "" if row.depth == 0 else corner if is_last else tee
        names.append("".join(bars) + branch + label(row, numbers[row.depth], settings))
        if row.depth:
            bars.append(blank if is_last else through)
    return names


def last_children(rows: tuple[Row, ...]) -> list[bool]:
    """Whether no later row has the same parent."""
    last: list[bool] = []
    open_depths: set[int] = set()
    for row in reversed(rows):
        last.append(row.depth not in open_depths)
        open_depths = {depth for depth in open_depths if depth < row.depth} | {row.depth}
    return last[::-1]


def label(row: Row, number: int, settings: set[str]) -> str:
    """`Conv2d (conv1): 1-1`, and a mark on what is counted elsewhere or never ran."""
    name = f" ({row.name})" if "var_names" in settings and row.kind == "module" and row.path else ""
    index = f": {row.depth}-{number}" if "depth" in settings and row.depth else ""
    return row.type + name + index + mark(row)


def mark(row: Row) -> str:
    if not row.watched:
        return ""
    if row.calls == 0:
        return " [not called]" if row.params_used else " [unused]"
    times = f" ×{row.calls}" if row.calls > 1 else ""
    return times + (" [shared]" if row.shared else "")


# the columns -----------------------------------------------------------------------------------------------


def shapes(sizes: tuple[tuple[int, ...], ...]) -> str:
    """`[1, 64, 224, 224]`; of several the first two, and how many more.

    >>> shapes(((1, 8), (1, 8), (2,)))
    '[1, 8] [1, 8] +1'
    """
    texts = ["[" + ", ".join(map(str, shape)) + "]" for shape in sizes[:2]]
    return " ".join(texts) + (f" +{len(sizes) - 2}" if len(sizes) > 2 else "") or NOTHING


def size(count: int) -> str:
    return format_bytes(count) if count else NOTHING


def number(count: int) -> str:
    return format_count(count) if count else NOTHING


def share(part: int, whole: int) -> str:
    return f"{part / whole:.2%}" if part and whole else NOTHING


def format_trainable(row: Row) -> str:
    if not row.params:
        return NOTHING
    return "True" if row.trainable_params == row.params else "Partial" if row.trainable_params else "False"


def params(row: Row) -> str:
    """The number, or where it is counted: torchinfo's word for a module that came before, ours for a tie."""
    if row.params or not row.shared:
        return number(row.params)
    return "(recursive)" if row.repeated else "(shared)"


Cell = Callable[[Row, Totals], str]
CELLS: dict[str, Cell] = {
    "input_size": lambda row, _: shapes(row.input_shapes),
    "output_size": lambda row, _: shapes(row.output_shapes),
    "num_params": lambda row, _: params(row),
    "params_percent": lambda row, totals: share(row.params, totals.params),
    "kernel_size": lambda row, _: str(list(row.kernel_size)) if row.kernel_size else NOTHING,
    "groups": lambda row, _: str(row.groups) if row.groups else NOTHING,
    "mult_adds": lambda row, _: number(row.macs),
    "trainable": lambda row, _: format_trainable(row),
    "calls": lambda row, _: number(row.calls),
    "dtype": lambda row, _: row.dtype or NOTHING,
    "param_bytes": lambda row, _: size(row.param_bytes),
    "buffer_bytes": lambda row, _: size(row.buffer_bytes),
    "output_bytes": lambda row, _: size(row.output_bytes),
    "kept_bytes": lambda row, _: size(row.kept_bytes),
    "kept_percent": lambda row, totals: share(row.kept_bytes, totals.kept_bytes),
    "transient_bytes": lambda row, _: size(row.transient_bytes),
}


def table_cells(rows: tuple[Row, ...], columns: tuple[str, ...], totals: Totals) -> dict[str, list[str]]:
    return {name: [CELLS[name](row, totals) for row in rows] for name in columns}


def table(
    heading: str, names: list[str], cells: dict[str, list[str]], width: int | None, fixed: bool
) -> list[str]:
    """The heading and a line a row. Default columns are left out, last first, until the others fit."""
    widths = {name: max(len(COLUMNS[name]), *map(len, column)) if column else len(COLUMNS[name])
              for name, column in cells.items()}  # fmt: skip
    natural = max(map(len, [heading, *names]))
    shown = list(cells)

    def room() -> int:
        return (width or math.inf) - sum(widths[name] + len(GAP) for name in shown)  # type: ignore[return-value]

    while not fixed and len(shown) > 1 and room() < min(natural, (width or 0) * NAME_SHARE):
        shown.pop()
    wide = natural if width is None else max(min(natural, room()), NARROWEST_NAME)
    rows = [[heading, *(COLUMNS[name] for name in shown)]]
    rows += ([name, *(cells[column][i] for column in shown)] for i, name in enumerate(names))
    return [
        (cut(first, wide) + "".join(
            GAP + (text.ljust if name in LEFT else text.rjust)(widths[name])
            for name, text in zip(shown, rest, strict=True)
        )).rstrip()
        for first, *rest in rows
    ]  # fmt: skip


def cut(text: str, width: int) -> str:
    """`text` in `width` columns, its middle left out where it is longer: both ends say something."""
    if len(text) <= width:
        return text.ljust(width)
    tail = (width - 1) // 3
    return text[: width - 1 - tail] + "…" + text[len(text) - tail :]


def wrap_lines(lines: Iterable[str], width: int | None, indent: int = 2) -> list[str]:
    """The lines, those wider than `width` broken at spaces and indented from the second part on."""
    if width is None:
        return list(lines)
    break_at = max(width, indent + 24)  # a narrower column is no text any more
    return [
        part
        for line in lines
        for part in (textwrap.wrap(line, break_at, subsequent_indent=" " * indent) or [""])
    ]


# totals ----------------------------------------------------------------------------------------------------


def format_scaled(count: int) -> str:
    """`(G): 15.47`, as torchinfo prints mult-adds."""
    for factor, unit in ((10**12, "T"), (10**9, "G"), (10**6, "M")):
        if count >= factor:
            return f" ({unit}): {count / factor:,.2f}"
    return f": {count:,}"


def totals_lines(summary: Summary) -> list[str]:
    """torchinfo's labels where they mean the same, and bytes as bytes."""
    totals = summary.totals
    outputs = sum(row.output_bytes for row in summary.rows)
    lines = [
        f"Total params: {format_count(totals.params)}",
        f"Trainable params: {format_count(totals.trainable_params)}",
        f"Non-trainable params: {format_count(totals.params - totals.trainable_params)}",
        f"Total mult-adds{format_scaled(totals.macs)}",
        f"Input size: {format_bytes(totals.input_bytes)}",
        f"Params size: {format_bytes(totals.param_bytes)}",
        f"Buffers size: {format_bytes(totals.buffer_bytes)}",
        f"Outputs, all of them: {format_bytes(outputs)}",
        f"Kept for backward: {format_bytes(totals.kept_bytes)}{kept_of(summary)}",
    ]
    if summary.weight_copies_bytes:
        lines.append(f"Copies of weights that autocast keeps: {format_bytes(summary.weight_copies_bytes)}")
    return lines


def kept_of(summary: Summary) -> str:
    """Which of the kept bytes are counted in another line too."""
    words = {"input": "the batch", "buffer": "buffers", "host": "numbers on the host"}
    parts = []
    for what, name in words.items():
        part = sum(kept.bytes for row in summary.rows for kept in row.kept if kept.what == what)
        if part:
            parts.append(f"{name} {format_bytes(part)}")
    return f", of which {', '.join(parts)}" if parts else ""


def notes(summary: Summary) -> list[str]:
    where = f"{summary.target}, {summary.mode}, inputs {' '.join(summary.inputs) or 'none'}"
    lines = [f"{where}; a forward only, the peak of a step is what memlens predict says"]
    unused = sum(row.watched and row.calls == 0 and not row.params_used for row in summary.rows)
    if unused:
        lines.append(f"[unused]: {unused} module{'s' * (unused > 1)} hold parameters that nothing used")
    lines += (f"assumed: {assumption_text(assumption)}" for assumption in summary.assumptions)
    return lines


def assumption_text(assumption: Assumption) -> str:
    return f"{assumption.what} ({assumption.why})"
