"""A cell's text as Python, line for line: magics become calls, as IPython makes them."""

from __future__ import annotations

import re
from typing import Any

# magics that run what they are given, as it is: it runs here as part of the cell, with the cell's own lines
RUN_THE_CELL = {"time", "capture", "prun", "memit", "mprun", "lprun", "mlprun"}
_CELL_MAGIC = re.compile(r"%%(\w+)\s*(.*)")
_CONTINUED = re.compile(r"\s*[!%].*\\\s*$")


def as_python(transformer: Any, source: str) -> str:
    """What IPython's `TransformerManager` makes of a cell; line 7 stays line 7."""
    lines = source.split("\n")
    first = next((n for n, line in enumerate(lines) if line.strip()), 0)
    while first < len(lines) and (magic := _CELL_MAGIC.match(lines[first])):
        if magic[1] not in RUN_THE_CELL:
            break
        lines[first] = _output_of(magic[2]) if magic[1] == "capture" else ""
        first += 1
    if any(_CONTINUED.match(line) for line in lines):
        lines = _joined(lines)
    blank = next((n for n, line in enumerate(lines) if line.strip()), 0)  # IPython leaves these out
    return "\n" * blank + str(transformer.transform_cell("\n".join(lines)))


def _output_of(name: str) -> str:
    """`%%capture name` makes a variable; nothing is captured here, for no one reads it."""
    words = [word for word in name.split() if not word.startswith("-")]
    capture = "__import__('IPython.utils.capture', fromlist=['x']).CapturedIO(None, None)"
    return f"{words[0]} = {capture}" if words else ""


def _joined(lines: list[str]) -> list[str]:
    """Magics that go on after a backslash in one line, and as many empty lines after it."""
    joined: list[str] = []
    owed = 0
    for line in lines:
        if joined and _CONTINUED.match(joined[-1]):
            joined[-1] = joined[-1].rstrip()[:-1] + line.strip()
            owed += 1
            if not _CONTINUED.match(joined[-1]):
                joined += [""] * owed
                owed = 0
        else:
            joined.append(line)
    return joined + [""] * owed
