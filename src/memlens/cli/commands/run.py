"""`memlens run`: run a program as it is, and record what it and its children hold."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import click

from memlens.cli.recording_options import Options, recording_options
from memlens.errors import MissingExtra, UsageError
from memlens.measurement.run import programs
from memlens.measurement.run.fast_start import SOURCE
from memlens.measurement.run.launch import record_program
from memlens.units import MIB


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@recording_options
@click.option("--lines", is_flag=True, help="Line by line: what @profile names, else the whole script.")
@click.option("--precision", type=click.IntRange(0, 9), default=3, help="Decimals in the tables of --lines.")
@click.option(
    "--pdb-mmem", type=float, metavar="MIB", help="A debugger where @profile'd code has more in use."
)
@click.option("--exact", is_flag=True, help="Every allocation and its line, native code's too (memray).")
@click.option("--no-oom", is_flag=True, help="Do not explain torch's out-of-memory errors.")
@click.option("--python-level", is_flag=True, help="Python's own memory too; slows Python down.")
@click.option("--python", is_flag=True, help="The program is a Python script or module, whatever its name.")
@click.option("--nopython", is_flag=True, help="Start it as any command: nothing of memlens inside.")
@click.option("-a", "--attach", is_flag=True, help="Of mprof: PROGRAM is a PID or a name; memlens attach.")
@click.option("-E", "--exit-code", is_flag=True, help="Of mprof. The exit code always passes through here.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="PROGRAM [ARGS]...")
def command(
    words: tuple[str, ...],
    lines: bool,
    precision: int,
    pdb_mmem: float | None,
    exact: bool,
    python_level: bool,
    no_oom: bool,
    python: bool,
    nopython: bool,
    attach: bool,
    exit_code: bool,
    **shared: Any,
) -> int:
    """Run PROGRAM (a script, a notebook, -m MODULE, or any command) and record its memory over time.

    \b
    memlens run train.py --epochs 3
    memlens run --lines train.py
    memlens run -m package.module
    memlens run -o build.memlens make -j4

    The record is in this directory; `memlens plot` draws it. The exit code is the program's, 128 + n if
    signal n ended it. Ctrl-C and SIGTERM go to the program.
    """
    options = Options(**shared)
    if attach:
        return attach_to(words, options)
    program = programs.parse(list(words), python)
    inside = inside_options(options, lines, exact, python_level)
    if pdb_mmem is not None:
        inside |= {"stop_above": round(pdb_mmem * MIB), "source": SOURCE, "backend": options.backend}
    if (inside or exact) and (nopython or not program.is_python):
        raise UsageError(
            f"{' '.join(words)!r} is not run as a Python script or module, which this needs",
            hint="name a script.py, -m module, or --python before a script of another name",
        )
    if options.live and program.is_python and not nopython:
        inside["live"] = 1
    if program.is_python and not nopython and not no_oom:
        inside |= {"oom": 1, "source": SOURCE}
    settings = options.settings(inside=inside, exact=exact, bare=nopython)
    path, open_sink = options.sink()
    with options.display(relay=True) as (on_tick, streams):
        recording = record_program(program, settings, open_sink, on_tick, streams)
    if not options.as_json:
        say(recording.lines, precision, recording.trace if exact and not options.quiet else None)
    options.conclude(recording, path)
    return programs.shell_code(recording.trace.metadata["exit_code"] or 0)


def attach_to(words: tuple[str, ...], options: Options) -> int:
    """`mprof run --attach PID` is `memlens attach PID`."""
    from memlens.cli.commands.attach import attach

    if len(words) != 1:
        raise UsageError(
            f"--attach takes one PID or name, got {' '.join(words)!r}", hint="memlens attach PID"
        )
    return attach(words[0], options)


def inside_options(options: Options, lines: bool, exact: bool, python_level: bool) -> dict[str, object]:
    """What is to run inside the program, as bootstrap.py takes it."""
    if lines and exact:
        raise UsageError(
            "--lines and --exact would measure each other", hint="run the program once with each"
        )
    if exact and find_spec("memray") is None:
        raise MissingExtra("memray", "exact", "--exact")
    wanted: dict[str, object] = {}
    if lines:
        wanted |= {"lines": 1, "source": SOURCE, "backend": options.backend}
        if options.include_children:
            wanted["children"] = 1
    if exact and python_level:
        wanted["every_object"] = 1
    elif python_level or options.backend == "tracemalloc":
        wanted["python_level"] = 1
    return wanted


def say(tables: list[dict[str, Any]], precision: int, trace: Any) -> None:
    """Line tables on standard output, as memory_profiler does; the peak's owners on standard error."""
    if tables:
        from memlens.model.lines import LineTable
        from memlens.render.lines import report

        click.echo(report((LineTable.from_dict(table) for table in tables), precision=precision))
    if trace is not None:
        from memlens.render.owners import owners

        click.echo(owners(trace), err=True)
