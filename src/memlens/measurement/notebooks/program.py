"""A notebook as a program under measurement: what `memlens run notebook.ipynb` runs, for real."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from types import ModuleType, TracebackType

from memlens.measurement.notebooks.cells import read_cells
from memlens.measurement.notebooks.shell import NotebookShell
from memlens.model.site import is_cell


def read_notebook(path: str, module: ModuleType) -> Callable[[], None]:
    """A function that runs the cells in `module`, in the notebook's folder as Jupyter does."""
    cells = read_cells(path)
    os.chdir(os.path.dirname(os.path.abspath(path)))
    shell = NotebookShell(module, shell_commands=True)
    sys.excepthook = show  # Python's own looks for the lines of a cell on the disk

    def run() -> None:
        for cell in cells:
            error = shell.run(cell)
            if error is not None:
                raise error

    return run


def show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an exception as Python does."""
    traceback.print_exception(kind, error, from_cell(trace))


def from_cell(trace: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames that lead to a cell."""
    inner = trace
    while inner is not None and not is_cell(inner.tb_frame.f_code.co_filename):
        inner = inner.tb_next
    return inner or trace
