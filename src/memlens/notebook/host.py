"""`%memit` and `%mprun`: a statement's peak, and functions line by line."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import Any

from IPython.core.error import UsageError as MagicUsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.display import display

from memlens.measurement.host.memit import MemitResult, memit
from memlens.measurement.lines.profiler import LineProfiler
from memlens.render import lines as render


class LineReport:
    """Tables that show themselves: as HTML in a notebook, as text in a terminal."""

    def __init__(self, profiler: LineProfiler) -> None:
        self.tables = profiler.tables()

    def __str__(self) -> str:
        return render.report(self.tables) or "none of the functions ran"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        return "".join(render.html(table) for table in self.tables) or f"<p>{escape(str(self))}</p>"


@magics_class
class HostMagics(Magics):  # type: ignore[misc] # IPython is Any to the checks
    """The memory of statements and lines."""

    @line_cell_magic  # type: ignore[untyped-decorator]
    def memit(self, line: str = "", cell: str | None = None) -> MemitResult | None:
        """Peak memory of a statement: %memit [-r R] [-t T] [-i I] [-c] [-o] [-q] [-p] statement

        -r R  run it R times (1 is the default) and show the largest peak
        -t T  stop sampling after T seconds; the statement runs to its end
        -i I  seconds between samples (0.1); peaks between them are seen all the same on Linux
        -c    children's memory counts
        -o    return the result
        -q    show nothing
        -p    also what Python's own allocators held at their peak (slower: tracemalloc)

        As a cell magic, the first line is set-up that is not measured.
        """
        options, statement = self.parse_options(line, "r:t:i:coqp", posix=False, strict=False)
        if cell is not None:
            exec(self.compiled(statement), self.shell.user_ns)
            statement = cell
        code = self.compiled(statement)
        result = memit(
            lambda: exec(code, self.shell.user_ns),
            repeat=max(1, number(options, "r", int, 1)),
            timeout=number(options, "t", float, None),
            interval=number(options, "i", float, 0.1),
            include_children="c" in options,
            python_level="p" in options,
        )
        if "q" not in options:
            print(result)
        return result if "o" in options else None

    @line_cell_magic  # type: ignore[untyped-decorator]
    def mprun(self, line: str = "", cell: str | None = None) -> LineProfiler | None:
        """Functions line by line: %mprun -f FUNC [-f FUNC ...] [-T FILE] [-r] [-c] [-p] [--classic] statement

        -f FUNC  a function to watch, also one that was defined in a cell; may be repeated
        -T FILE  also write the tables to a text file
        -r       return the profiler
        -c       children's memory counts
        -p       also what Python's own allocators handed out (slower: tracemalloc)
        --classic  only memory_profiler's own columns

        As a cell magic, the cell is what runs.
        """
        options, statement = self.parse_options(
            line, "f:T:rcp", "classic", posix=False, strict=False, list_all=True
        )
        if cell is not None:
            statement += "\n" + cell
        functions = [self.function(name) for name in options.get("f", [])]
        if not functions:
            raise MagicUsageError("%mprun needs a function to watch: %mprun -f FUNC statement")
        profiler = LineProfiler(*functions, python_level="p" in options, include_children="c" in options)
        code = self.compiled(statement)
        try:
            with profiler:
                exec(code, self.shell.user_ns)
        finally:
            self.show(profiler, options)
        return profiler if "r" in options else None

    def show(self, profiler: LineProfiler, options: Any) -> None:
        if "classic" in options:
            print(render.report(profiler.tables(), classic=True))
        else:
            display(LineReport(profiler))
        for name in options.get("T", []):
            Path(name).write_text(render.report(profiler.tables(), classic="classic" in options))
            print(f"wrote the tables to {name}")

    def compiled(self, statement: str) -> Any:
        """A statement in the user's language: magics and `!` are translated as in any cell."""
        return compile(self.shell.transform_cell(statement), "<memlens magic>", "exec")

    def function(self, name: str) -> Any:
        try:
            return eval(name, self.shell.user_ns)
        except Exception as error:
            raise MagicUsageError(f"cannot find the function {name!r}: {error}") from error


def number(options: Any, name: str, kind: Any, default: Any) -> Any:
    if name not in options:
        return default
    try:
        return kind(options[name])
    except ValueError:
        raise MagicUsageError(f"-{name} needs a number, got {options[name]!r}") from None
