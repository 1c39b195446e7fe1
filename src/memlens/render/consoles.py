"""Consoles of rich that show text as it is: a `[name]` or `:name:` in a path or a record is no markup."""

from __future__ import annotations

from typing import Any

from rich.console import Console, RenderableType


def plain_console(**options: Any) -> Console:
    """A console that takes no text for markup. `options` are those of rich's Console."""
    return Console(markup=False, emoji=False, highlight=False, **options)


def as_text(page: RenderableType, width: int = 80) -> str:
    """A page as plain text without colour, for a file.

    >>> as_text("[bold] is the name of a folder")
    '[bold] is the name of a folder\\n'
    """
    console = plain_console(width=width, color_system=None, force_terminal=False, legacy_windows=False)
    with console.capture() as drawn:
        console.print(page)
    return drawn.get()
