"""`%mlrun`: functions line by line with a GPU's counters, as pytorch_memlab's users type it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from IPython.core.error import UsageError as MagicUsageError
from IPython.core.magic import Magics, line_cell_magic, magics_class
from IPython.display import display

from memlens.errors import MemlensError


@magics_class
class GpuMagics(Magics):  # type: ignore[misc] # IPython is Any to the checks
    """The memory of a GPU, real or simulated, line by line."""

    @line_cell_magic  # type: ignore[untyped-decorator]
    def mlrun(self, line: str = "", cell: str | None = None) -> Any:
        """GPU memory line by line: %mlrun -f FUNC [-f FUNC ...] [-c COLUMN ...] [-g GPU] [-T FILE] statement

        -f FUNC    a function to watch; may be repeated
        -c COLUMN  a field of torch.cuda.memory_stats, such as allocated_bytes.all.peak; may be repeated
        -D         the default columns in addition to those of -c
        -g GPU     the card's number (0)
        -T FILE    also write the tables to a text file
        -r         return the profiler
        -q         show nothing

        As a cell magic, the cell is what runs.
        """
        from memlens.compat.pytorch_memlab import DEFAULT_COLUMNS, LineProfiler  # loads torch

        options, statement = self.parse_options(line, "f:c:Dg:T:rq", posix=False, strict=False, list_all=True)
        if cell is not None:
            statement += "\n" + cell
        columns = tuple(options.get("c", ()))
        if "D" in options or not columns:
            columns = tuple(dict.fromkeys((*columns, *DEFAULT_COLUMNS)))
        code = compile(self.shell.transform_cell(statement), "<memlens magic>", "exec")
        try:
            functions = [eval(name, self.shell.user_ns) for name in options.get("f", [])]
            gpu = int(options.get("g", ["0"])[-1])
        except Exception as error:
            raise MagicUsageError(f"%mlrun {line!r}: {error}") from error
        if not functions:
            raise MagicUsageError("%mlrun needs a function to watch: %mlrun -f FUNC statement")
        profiler = LineProfiler(*functions, target_gpu=gpu, columns=columns)
        try:
            with profiler:
                exec(code, self.shell.user_ns)
        except MemlensError as error:
            raise MagicUsageError(str(error)) from error
        finally:
            if "q" not in options:
                display(profiler.display())
            for name in options.get("T", []):
                Path(name).write_text(str(profiler.display()), encoding="utf-8")
        return profiler if "r" in options else None
