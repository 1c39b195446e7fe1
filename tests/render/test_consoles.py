"""Text of records and paths is shown as it is."""

from __future__ import annotations

import pytest
from rich.table import Table

from memlens.render.consoles import as_text


@pytest.mark.parametrize("name", ["[/]", "[red]x[/red]", ":smile:", "[link=http://a]b[/link]"])
def test_a_name_is_no_markup(name: str) -> None:
    """A folder may be called `[red]`, and a line of code may have `x[/]` in it."""
    table = Table(title=name)
    table.add_column(name)
    table.add_row(name)
    assert as_text(table, width=60).count(name) == 3
