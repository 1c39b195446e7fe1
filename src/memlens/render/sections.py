"""Parts of a page in the terminal: a title with what is below it."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text


def section(title: str, body: RenderableType) -> Group:
    return Group(Text(), Text(title, style="bold underline"), body)


def grid() -> Table:
    return Table.grid(padding=(0, 2, 0, 0))
