"""Two records side by side, for a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from memlens.explanation.comparison import KINDS, Comparison, Difference
from memlens.model.category import Category
from memlens.units import format_count, format_mib

TITLES = {
    "total": "in all",
    "phase": "highest in each phase",
    "category": "at the peak, by what it is for",
    "module": "at the peak, by module",
    "line": "at the peak, by line",
}


def page(comparison: Comparison, *, top: int = 10, kinds: tuple[str, ...] = KINDS) -> RenderableType:
    """A table a kind; in each the `top` rows that differ most."""
    head = Text(
        f"A: {comparison.a} ({comparison.a_origin})\nB: {comparison.b} ({comparison.b_origin})", style="bold"
    )
    parts: list[RenderableType] = [head]
    for kind in kinds:
        rows = comparison.of(kind) if kind == "total" else comparison.differences(kind)
        if rows:
            parts += [Text(), _table(TITLES[kind], rows[:top])]
            if len(rows) > top:
                parts.append(Text(f"and {format_count(len(rows) - top)} more (--top)", style="dim"))
        elif comparison.of(kind):
            parts += [Text(), Text(f"{TITLES[kind]}: no difference", style="dim")]
        elif kinds is not KINDS:  # it was asked for
            parts += [Text(), Text(f"{TITLES[kind]}: neither record knows", style="dim")]
    parts += [Text(f"\nnote: {note}", style="dim") for note in comparison.notes]
    return Group(*parts)


def _table(title: str, rows: list[Difference]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for heading in ("A MiB", "B MiB", "B - A"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", overflow="fold")
    table.add_column("why", overflow="fold", style="dim")
    for row in rows:
        table.add_row(_mib(row.a_bytes), _mib(row.b_bytes), _signed(row), _key(row), row.reason)
    return table


def _mib(size: int | None) -> str:
    return "-" if size is None else format_mib(size).removesuffix(" MiB")


def _signed(row: Difference) -> str:
    if row.kind == "total" and None in (row.a_bytes, row.b_bytes):
        return ""
    text = _mib(row.delta_bytes)
    return f"+{text}" if row.delta_bytes > 0 else text


def _key(row: Difference) -> str:
    return Category(row.key).label if row.kind == "category" else row.key
