"""Where a command's answer goes: a file that is not overwritten, a terminal that may lack characters."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memlens.errors import UsageError
from memlens.render.bars import encodable

if TYPE_CHECKING:
    from rich.console import RenderableType


# the ending of -o FILE, and what is written then; each command names those it has
ENDINGS = {
    ".json": "the figures as data",
    ".csv": "a table",
    ".txt": "what the terminal shows",
    ".html": "a page",
    ".memlens": "every event",
    ".pickle": "a torch snapshot",
}


def check_output(output: Path | None, force: bool, endings: Sequence[str] = ()) -> None:
    """Refuse a file that cannot or should not be written, before anything is computed."""
    if output is None:
        return
    if endings and output.suffix not in endings:
        known = ", ".join(f"{ending} ({ENDINGS[ending]})" for ending in endings)
        raise UsageError(f"cannot write {output}: the ending says the format", hint=f"use {known}")
    if output.is_dir():
        raise UsageError(f"cannot write {output}: it is a directory")
    if output.exists() and not force:
        raise UsageError(f"will not overwrite {output}", hint="add --force, or name another file")
    if not output.parent.is_dir():
        raise UsageError(f"there is no folder {output.parent} to write {output.name} in")


def print_page(page: RenderableType) -> None:
    """Print a page of rich's, as wide as the terminal."""
    from memlens.render.consoles import plain_console  # rich takes its time to load

    console = plain_console(file=sys.stdout, width=shutil.get_terminal_size().columns)
    with console.capture() as drawn:
        console.print(page)
    print_text(drawn.get().removesuffix("\n"))


def print_text(text: str) -> None:
    """Print text with what the terminal's encoding has."""
    click.echo(encodable(text, sys.stdout.encoding))
