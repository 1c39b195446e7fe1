"""Where an allocation was made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Frame(NamedTuple):
    """One frame of a Python (or C++) stack."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


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
        return f"{self.file}:{self.line}" if self.file else ""


NOWHERE = Site()
