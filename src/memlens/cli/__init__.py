"""The command line: validate, call, render. `main` is where exceptions become exit codes."""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` takes 8 ms to import, and the program of `memlens run` waits
if TYPE_CHECKING:
    from typing import NoReturn


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line: `arguments`, else what was typed, as the process's last act."""
    import sys

    if arguments is not None:
        from memlens.cli.main import main

        main(arguments)
    from memlens.measurement.run import fast_start

    if sys.argv[1:2] == ["run"]:
        fast_start.start(sys.argv[2:])
    try:
        from memlens.cli.main import main

        main()
    finally:
        import gc

        gc.freeze()  # or the interpreter's end would look through all of it once more: 15 ms
        if fast_start.started is not None:  # not taken over: it runs all the same, its exit code is ours
            sys.exit(fast_start.wait_alone(fast_start.started))
