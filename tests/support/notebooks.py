"""Notebooks for tests: a file from the text of its cells."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def write_notebook(path: Path, *sources: str, language: str = "python") -> str:
    """A notebook with these code cells, a text cell before each; its path."""
    from nbformat import v4, write

    cells: list[Any] = []
    for source in sources:
        cells += [v4.new_markdown_cell("what follows"), v4.new_code_cell(source)]
    kernel = {"name": language, "display_name": language, "language": language}
    write(v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), path)
    return str(path)
