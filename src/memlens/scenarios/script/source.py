"""The text of a script as Python: a file's own, or that of a notebook's cells one after the other."""

from __future__ import annotations

import ast
from pathlib import Path

from memlens.measurement.notebooks.cells import ENDING, read_cells
from memlens.measurement.notebooks.python_source import as_python


def read_source(path: Path) -> str:
    """What `ast.parse` takes. Of a notebook, cells that are no Python are left out."""
    if path.suffix != ENDING:
        return path.read_text(encoding="utf-8", errors="replace")
    from IPython.core.inputtransformer2 import TransformerManager

    texts = [as_python(TransformerManager(), cell.source) for cell in read_cells(str(path))]
    return "\n".join(text for text in texts if _is_python(text))


def _is_python(text: str) -> bool:
    try:
        ast.parse(text)
    except SyntaxError:
        return False
    return True
