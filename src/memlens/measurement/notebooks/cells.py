"""The code cells of a notebook: their numbers, their text, and which of them were asked for."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from importlib.util import find_spec
from typing import NamedTuple

from memlens.errors import MissingExtra, UsageError

ENDING = ".ipynb"
LIBRARIES = ("nbformat", "IPython")


class Cell(NamedTuple):
    """A code cell. `number` is what Jupyter shows as `[7]` after all cells were run in order."""

    number: int
    source: str
    file: str  # what code of it is compiled as: `/home/me/train.ipynb, cell 7`


def read_cells(path: str, which: str = "") -> list[Cell]:
    """The code cells of the notebook at `path` that are not empty; of these, `which` (`1-3,7`)."""
    for library in LIBRARIES:
        if find_spec(library) is None:
            raise MissingExtra(library, "notebook", os.path.basename(path))
    import nbformat

    if not os.path.isfile(path):
        raise UsageError(f"there is no notebook {path}", hint=f"looked for it in {os.getcwd()}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of old notebooks, whose cells have no names
            notebook = nbformat.read(path, as_version=4)
    except Exception as problem:  # not JSON, not a notebook, or one that Jupyter would refuse too
        raise UsageError(f"{path} cannot be read as a notebook: {_first_line(problem)}") from problem
    language = notebook.metadata.get("kernelspec", {}).get("language") or "python"
    if language != "python":
        raise UsageError(f"{path} is a notebook of {language}, not of Python")
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code" and cell.source.strip()]
    if not sources:
        raise UsageError(f"{path} has no cell with code in it")
    place = os.path.abspath(path)
    cells = [Cell(n, source, f"{place}, cell {n}") for n, source in enumerate(sources, 1)]
    numbers = chosen(which, len(cells), path) if which else set(range(1, len(cells) + 1))
    return [cell for cell in cells if cell.number in numbers]


def chosen(which: str, last: int, path: str) -> set[int]:
    """The numbers that `1,3-5,8-` names, of cells 1 to `last`.

    >>> sorted(chosen("1,3-5", 9, "train.ipynb"))
    [1, 3, 4, 5]
    """
    numbers: set[int] = set()
    for part in which.split(","):
        start, dash, end = part.strip().partition("-")
        first, final = start or "1", end or (str(last) if dash else start)
        if not (first.isdecimal() and final.isdecimal() and 1 <= int(first) <= int(final) <= last):
            raise UsageError(
                f"--cells {which}: {part.strip()!r} names no cells of {path}, which has 1 to {last}",
                hint="write --cells 1-12 or --cells 1,3-5",
            )
        numbers |= set(range(int(first), int(final) + 1))
    return numbers


def ranges(numbers: Sequence[int]) -> str:
    """Numbers in ascending order as people write them.

    >>> ranges([1, 3, 4, 5])
    '1, 3-5'
    """
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ", ".join("-".join(map(str, part)) for part in parts)


def _first_line(problem: Exception) -> str:
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    return lines[0] if lines else type(problem).__name__
