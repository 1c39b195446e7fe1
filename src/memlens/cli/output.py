"""Where a command's answer goes: a file that is not overwritten, a terminal that may lack characters."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memlens.errors import UsageError
from memlens.render.bars import encodable

if TYPE_CHECKING:
    from rich.console import RenderableType


def check_output(output: Path | None, force: bool, endings: Iterable[str] = (), hint: str = "") -> None:
    """Refuse a file that cannot or should not be written, before anything is computed."""
    if output is None:
        return
    if endings and output.suffix.lower() not in endings:
        raise UsageError(f"cannot write {output}: the ending says the format", hint=hint or None)
    if output.is_dir():
        raise UsageError(f"cannot write {output}: it is a directory")
    if output.exists() and not force:
        raise UsageError(f"will not overwrite {output}", hint="add --force, or name another file")
    if not output.parent.is_dir():
        raise UsageError(f"there is no folder {output.parent} to write {output.name} in")


def print_page(page: RenderableType) -> None:
    """Print a page of rich's, as wide as the terminal."""
    from rich.console import Console  # takes its time to load

    console = Console(file=sys.stdout, width=shutil.get_terminal_size().columns, highlight=False)
    with console.capture() as drawn:
        console.print(page)
    print_text(drawn.get().removesuffix("\n"))


def print_text(text: str) -> None:
    """Print text with what the terminal's encoding has."""
    click.echo(encodable(text, sys.stdout.encoding))
