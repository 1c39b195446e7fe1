"""IPython's own shell, without a terminal or a kernel, in which the cells of a notebook run.

It reads magics, keeps `Out`, `_` and what was displayed, and runs `await` at the top, as under Jupyter. What
is ours: cells are compiled under their own names and lines, and an exception comes back to the caller.
"""

from __future__ import annotations

import ast
import linecache
import os
import re
import shlex
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

from memlens.measurement.notebooks.cells import Cell
from memlens.measurement.notebooks.python_source import as_python

# magics that run a statement, and their options as getopt writes them; timeit's does not keep its names
_RUN = {
    "time": "", "timeit": "n:r:tcp:qov:", "prun": "D:l:rs:T:q", "memit": "r:t:i:coqp", "mprun": "f:T:rcp",
    "lprun": "f:m:D:T:rsuz",
}  # fmt: skip
# what starts a program that may train: its whole command is written down
STARTS_PROGRAMS = re.compile(r"python[\d.]*|torchrun|accelerate|deepspeed")
# magics that change how a notebook looks or is edited, and nothing that takes memory
_SILENT = frozenset(
    "matplotlib load_ext reload_ext unload_ext autoreload aimport config colors xmode pdb automagic "
    "precision tensorflow_version html markdown javascript js latex svg".split()
)
# magics of IPython that are run as they are
_REAL = frozenset(
    "cd pwd env set_env writefile file reset reset_selective xdel pushd popd who whos who_ls".split()
)


class NotebookShell:
    """One notebook's shell, whose namespace is that of `module`.

    With `shell_commands` what follows `!`, and every magic of IPython, runs as in Jupyter. Without, they are
    left out and written down in `left_out`.
    """

    def __init__(self, module: ModuleType, *, shell_commands: bool) -> None:
        from IPython.core.interactiveshell import InteractiveShell
        from traitlets.config import Config

        config = Config()
        config.HistoryManager.enabled = False  # it is a database in the home folder
        config.InteractiveShell.ipython_dir = tempfile.mkdtemp()
        config.InteractiveShell.warn_venv = False
        self.shell: Any = InteractiveShell.instance(user_module=module, config=config)
        self.names: dict[str, Any] = module.__dict__
        del self.names["open"]  # IPython's own would pass by what replaces the built-in one
        self.left_out: list[str] = []
        self._magic = (self.shell.run_line_magic, self.shell.run_cell_magic)
        self._cell: Cell
        self.shell_commands = shell_commands
        warnings.filterwarnings("ignore", "To exit")  # what it says of SystemExit
        self._adopt()

    def _adopt(self) -> None:
        shell = self.shell
        shell.showtraceback = shell.showsyntaxerror = shell.showindentationerror = _say_nothing
        shell._update_code_co_name = lambda code: code  # old ones call a cell's module `<cell line: 1>`
        shell._format_exception_for_storage = _say_nothing  # it would keep every frame of the traceback
        shell.transform_cell = lambda source: as_python(shell.input_transformer_manager, source)
        shell.compile.get_code_name = lambda *_: self._cell.file
        shell.run_line_magic, shell.run_cell_magic = self._line_magic, self._cell_magic
        if not self.shell_commands:
            shell.system = shell.system_raw = shell.system_piped = self._command
            shell.getoutput = self._output

    def run(self, cell: Cell) -> BaseException | None:
        """Run a cell; the exception that ended it, if one did."""
        self._cell = cell
        result = self.shell.run_cell(cell.source, store_history=True)
        lines = cell.source.splitlines(keepends=True)
        linecache.cache[cell.file] = (len(cell.source), None, lines, cell.file)
        error: BaseException | None = result.error_before_exec or result.error_in_exec
        if error is not None:
            result.error_before_exec = result.error_in_exec = None  # the shell keeps its last result
        return error

    # magics ----------------------------------------------------------------------------------------

    def _line_magic(self, name: str, line: str, _stack_depth: int = 1) -> Any:
        """`%name line`, and `x = %name line`."""
        here = sys._getframe(1).f_lineno
        if name == "timeit" and not self.shell_commands:
            with self._names_of_its_own():
                return self._execute(self._statement(name, line), here)
        if name in _RUN and name != "timeit":
            return self._execute(self._statement(name, line), here)
        if name == "run" and not self.shell_commands:
            return self._run_file(line)
        if name in _SILENT:
            return None
        if self.shell_commands or name in _REAL:
            return self._magic[0](name, line, _stack_depth + 1)
        return self._leave_out(f"%{name}")

    def _cell_magic(self, name: str, line: str, body: str) -> Any:
        """`%%name line` and the cell below it."""
        here = sys._getframe(1).f_lineno
        if name == "timeit" and not self.shell_commands:
            with self._names_of_its_own():
                self._execute(self._statement(name, line), here)
                return self._execute(body, here + 1)
        if name in _SILENT:
            return None
        if self.shell_commands or name in _REAL:
            return self._magic[1](name, line, body)
        return self._leave_out(f"%%{name}")

    def _statement(self, name: str, line: str) -> str:
        """What a magic runs, without its options."""
        from IPython.core.magics.execution import ExecutionMagics

        _, statement = ExecutionMagics(self.shell).parse_options(
            line, _RUN[name], "classic", posix=False, strict=False
        )
        return str(statement)

    def _execute(self, source: str, line: int) -> Any:
        """Python from a magic, at its line of the cell; the value of its last expression."""
        file, names = self._cell.file, self.names
        text = as_python(self.shell.input_transformer_manager, source)
        tree = ast.parse("\n" * (line - 1) + text, file)
        last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
        exec(compile(tree, file, "exec"), names)
        if not isinstance(last, ast.Expr):
            return None
        return eval(compile(ast.Expression(last.value), file, "eval"), names)

    @contextmanager
    def _names_of_its_own(self) -> Iterator[None]:
        """`timeit` runs its statement in a function: what it assigns is gone afterwards."""
        before = dict(self.names)
        try:
            yield
        finally:
            self.names.clear()
            self.names.update(before)

    def _run_file(self, line: str) -> None:
        """`%run file.py arguments`: in names of its own, which are the notebook's afterwards."""
        words = shlex.split(line)
        path = next((word for word in words if word.endswith((".py", ".ipy"))), None)
        if path is None:
            self._leave_out("%run")
            return
        with open(path, "rb") as file:  # as the notebook itself would read it
            code = compile(file.read(), os.path.abspath(path), "exec")
        names: dict[str, Any] = {"__name__": "__main__", "__file__": path}
        argv, sys.argv = sys.argv, words[words.index(path) :]
        try:
            exec(code, names)
        finally:
            sys.argv = argv
        self.names.update({name: value for name, value in names.items() if not name.startswith("__")})

    def _command(self, command: str) -> None:
        first = os.path.basename((command.split() or [""])[0])
        if STARTS_PROGRAMS.match(first) and ".py" in command:
            self._leave_out("!" + " ".join(str(self.shell.var_expand(command, depth=1)).split()))
        else:
            self._leave_out("!" + first)

    def _output(self, command: str, *_: Any, **__: Any) -> Any:
        """What `x = !command` assigns: no lines."""
        from IPython.utils.text import SList

        self._command(command)
        return SList()

    def _leave_out(self, what: str) -> None:
        if what not in self.left_out:
            self.left_out.append(what)


def _say_nothing(*_: Any, **__: Any) -> None:
    """In place of what shows an exception: the caller has it."""
