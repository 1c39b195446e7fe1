"""`memlens run`: run a program as it is, and record what it and its children hold."""

from __future__ import annotations

from pathlib import Path

import click

from memlens.cli import recording as shared
from memlens.errors import UsageError
from memlens.measure import programs
from memlens.measure.recording import record_program
from memlens.records import folder


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@shared.recording_options
@click.option(
    "--python-level", is_flag=True, help="Python's own memory too (tracemalloc; slows Python down)."
)
@click.option("--python", is_flag=True, help="The program is a Python script or module, whatever its name.")
@click.option("--nopython", is_flag=True, help="Start it as any command: nothing of memlens inside.")
@click.option("-E", "--exit-code", is_flag=True, help="Of mprof. The exit code always passes through here.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="PROGRAM [ARGS]...")
def command(
    words: tuple[str, ...],
    interval: float,
    include_children: bool,
    multiprocess: bool,
    timeout: float | None,
    output: Path | None,
    force: bool,
    backend: str,
    live: bool,
    as_json: bool,
    quiet: bool,
    python_level: bool,
    python: bool,
    nopython: bool,
    exit_code: bool,
) -> int:
    """Run PROGRAM (a script, -m MODULE, or any command) and record its memory over time.

    \b
    memlens run train.py --epochs 3
    memlens run -m package.module
    memlens run -o build.memlens make -j4

    The record lies in this directory; `memlens plot` draws it. The exit code is the program's, 128 + n if
    signal n ended it. Ctrl-C and SIGTERM go to the program.
    """
    program = programs.parse(list(words), python)
    inside = _inside(program, nopython, python_level or backend == "tracemalloc", live)
    settings = shared.settings_for(interval, backend, timeout, include_children, inside=inside, bare=nopython)
    path = output or Path(folder.default_name())
    recording = record_program(program, settings, shared.sink_opener(path, force, settings))
    shared.conclude(recording, path, as_json, quiet)
    return programs.shell_code(recording.trace.metadata["exit_code"])


def _inside(program: programs.Program, nopython: bool, python_level: bool, live: bool) -> dict[str, object]:
    """What runs inside the program; an error if it is not one that we can be inside of."""
    wanted: dict[str, object] = {"python_level": 1} if python_level else {}
    if wanted and (nopython or not program.is_python):
        raise UsageError(
            f"{' '.join(program.words)!r} is not run as a Python script or module, which this needs",
            hint="memlens run --python-level script.py, -m module, or --python for a script of another name",
        )
    return {**wanted, "live": 1} if live else wanted
