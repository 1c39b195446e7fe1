"""What the page of a notebook's prediction has in addition: memory after each cell, and its variables."""

from __future__ import annotations

from typing import Any

from memlens.render.report.blocks import Block, Section, Table, count, mib, words


def notebook(scenario: dict[str, Any]) -> Section | None:
    """Nothing for a script or a model."""
    if not scenario.get("cells"):
        return None
    rows = [
        (
            count(row["cell"]),
            mib(row["allocated_bytes"]),
            mib(row["added_bytes"]),
            mib(row["peak_bytes"]),
            words("stopped" if row["stopped"] else "cut short" if row["cut_steps"] else ""),
        )
        for row in scenario["cells"]
    ]
    columns = ("#cell", "#allocated", "#added", "#peak in it", "")
    blocks: list[Block] = [Table("Memory after each cell, MiB", columns, rows)]
    if scenario.get("variables"):
        held = [
            (words(row["name"]), mib(row["bytes"]), mib(row["alone_bytes"])) for row in scenario["variables"]
        ]
        titles = ("variable", "#leads to", "#alone")
        blocks.append(Table("What variables lead to at the end, MiB", titles, held))
    return Section("cells", "Cell by cell", blocks)
