"""A notebook as a program under measurement: what `memlens run notebook.ipynb` runs, for real."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import ModuleType, TracebackType

from memlens.measurement.notebooks.cells import read_cells
from memlens.measurement.notebooks.shell import NotebookShell


def read_notebook(path: str, module: ModuleType) -> Callable[[], None]:
    """A function that runs the cells in `module`, in the notebook's folder as Jupyter does."""
    cells = read_cells(path)
    os.chdir(os.path.dirname(os.path.abspath(path)))
    shell = NotebookShell(module, shell_commands=True)

    def run() -> None:
        for cell in cells:
            error = shell.run(cell)
            if error is not None:
                raise error.with_traceback(from_cell(error, cell.file))

    return run


def from_cell(error: BaseException, file: str) -> TracebackType | None:
    """The traceback without the frames of IPython that lead to the cell."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != file:
        trace = trace.tb_next
    return trace or error.__traceback__
