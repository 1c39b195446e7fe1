"""What a prediction of a notebook shows in addition: memory after each cell, and what its variables hold."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from memlens.render.sections import grid, section
from memlens.units import format_bytes


def sections(scenario: dict[str, Any]) -> list[RenderableType]:
    """The parts that follow the peak."""
    parts: list[RenderableType] = [section("Memory after each cell", cells(scenario["cells"]))]
    if scenario.get("variables"):
        parts.append(section("What variables lead to at the end", variables(scenario["variables"])))
    return parts


def cells(rows: list[dict[str, Any]]) -> RenderableType:
    """A row for each cell in which memory moved; the others are counted."""
    table = titled("cell", "allocated", "added", "peak in it", "")
    before, quiet = 0, 0
    for row in rows:
        if row["added_bytes"] or row["peak_bytes"] > before:
            table.add_row(
                f"  {row['cell']}",
                format_bytes(row["allocated_bytes"]),
                format_bytes(row["added_bytes"], sign=True) if row["added_bytes"] else "",
                format_bytes(row["peak_bytes"]),
                Text("stopped" if row["stopped"] else "cut short" if row["cut_steps"] else "", style="dim"),
            )
        else:
            quiet += 1
        before = row["allocated_bytes"]
    if not quiet:
        return table
    others = "the others" if quiet < len(rows) else "all of them"
    return Group(table, Text(f"  {others} ({quiet}) leave it as it is", style="dim"))


def variables(rows: list[dict[str, Any]]) -> Table:
    """Sums overlap: a model and its optimizer lead to the same weights. `del` frees what is its alone."""
    table = titled("variable", "leads to", "alone", left=1)
    for row in rows:
        alone = format_bytes(row["alone_bytes"]) if row["alone_bytes"] else ""
        table.add_row(Text(f"  {row['name']}"), format_bytes(row["bytes"]), alone)
    return table


def titled(*names: str, left: int = 0) -> Table:
    """A table whose first row names its columns; figures are flush right."""
    table = grid()
    for place, _ in enumerate(names):
        table.add_column(justify="left" if place < left or not names[place] else "right", no_wrap=True)
    table.add_row(
        *(Text(f"  {name}" if not place else name, style="dim") for place, name in enumerate(names))
    )
    return table
