"""Where an allocation was made."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple


def place(file: str, line: int) -> str:
    """A line as people name it.

    >>> place("train.py", 12), place("train.ipynb, cell 7", 3)
    ('train.py:12', 'train.ipynb, cell 7, line 3')
    """
    return f"{file}, line {line}" if is_cell(file) else f"{file}:{line}"


def is_cell(file: str) -> bool:
    """Whether code was compiled as a notebook's cell, rather than as a file."""
    return _CELL.search(file) is not None


_CELL = re.compile(r"\.ipynb, cell \d+\Z")


class Frame(NamedTuple):
    """One frame of a Python (or C++) stack."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{place(self.file, self.line)} in {self.function}"


@dataclass(frozen=True, slots=True)
class Site:
    """Source line (the user's code first), module path and operator of an allocation.

    `file` is empty and `line` 0 where no Python frame is known; `module` is the dotted path in the model
    (`layers.3.attn`), empty for the root and None outside every module; `frames` is the stack, innermost
    first, where a recording has it.
    """

    file: str = ""
    line: int = 0
    function: str = ""
    module: str | None = None
    module_type: str = ""
    operator: str = ""
    backward: bool = False
    frames: tuple[Frame, ...] = ()

    @property
    def where(self) -> str:
        """`file.py:12`, or an empty string where no line is known."""
        return place(self.file, self.line) if self.file else ""


NOWHERE = Site()
