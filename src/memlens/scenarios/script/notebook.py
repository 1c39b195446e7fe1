"""A notebook inside the simulation: cell after cell, each until it has shown enough steps."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable

from memlens.measurement.child import bootstrap
from memlens.measurement.notebooks.cells import read_cells
from memlens.measurement.notebooks.program import from_cell
from memlens.measurement.notebooks.shell import NotebookShell
from memlens.scenarios.script.constants import Replace
from memlens.scenarios.script.job import CellRun, Job, NotebookRun
from memlens.scenarios.script.stop_condition import Steps
from memlens.scenarios.script.variables import held_by_variables
from memlens.scenarios.user_frames import last_line, place


class Notebook:
    """One notebook's run. In Jupyter all cells share a namespace, and what it holds stays alive."""

    def __init__(self, job: Job, say: Callable[[str], None], is_late: Callable[[], bool]) -> None:
        self.job, self.say, self.is_late = job, say, is_late
        self.cells = read_cells(job.path, job.cells)
        self.ran: list[CellRun] = []
        self.ended = ""
        self.variables: list[tuple[str, int, int]] = []
        path = os.path.abspath(job.path)
        sys.argv[:] = [path, *job.arguments]
        os.chdir(os.path.dirname(path))  # where Jupyter runs it
        sys.path.insert(0, os.path.dirname(path))
        module = sys.modules["__main__"] = bootstrap.new_main()
        self.shell = NotebookShell(module, shell_commands=False)
        self.shell.shell.ast_transformers.append(Replace(job.constants))

    def run(self, steps: Steps) -> None:
        """All its cells. What ends one ends the notebook, except that it had shown enough steps."""
        for cell in self.cells:
            steps.begin_cell()
            start = len(steps.sim.events)
            self.say(f"running {self.job.name}, cell {cell.number} of {self.cells[-1].number}")
            error = self.shell.run(cell)
            stop = steps.end if steps.stopped and not self.is_late() else None
            if steps.stopped and error is not None:
                error.__traceback__ = None  # it holds what the functions held that were stopped
            elif error is not None and not self._is_ours(error, cell.number, steps.rounds.were_cut):
                raise error.with_traceback(from_cell(error.__traceback__))
            cut_steps = steps.rounds.updates if steps.rounds.were_cut else 0
            self.ran.append(CellRun(cell.number, start, len(steps.sim.events), stop, cut_steps))
            if stop is not None:
                steps.go_on(f"after cell {cell.number}")
            if self.ended or self.is_late():
                break
        self.variables = held_by_variables(steps.sim, self.shell.names)

    def _is_ours(self, error: BaseException, number: int, were_cut: bool) -> bool:
        """Whether an error may come from a cell that was cut short. Then what was seen is told."""
        cut = [ran.number for ran in self.ran if ran.stop is not None or ran.cut_steps] + [number] * were_cut
        if not cut or not isinstance(error, Exception):
            return False
        self.ended = f"ended at {place(error)}: {last_line(error)}; cell {cut[-1]} was cut short"
        return True

    def result(self) -> NotebookRun:
        return NotebookRun(self.ran, self.variables, self.shell.left_out, self.ended)
