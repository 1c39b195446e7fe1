"""The command line: validate, call, render. `main` is where exceptions become exit codes."""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` takes 8 ms to import, and the program of `memlens run` waits
if TYPE_CHECKING:
    from typing import NoReturn


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line: `arguments`, else what was typed, as the process's last act."""
    import sys

    own = arguments is None
    if own and sys.argv[1:2] == ["run"]:
        from memlens.measure import early

        early.start(sys.argv[2:])
    from memlens.cli.main import main

    try:
        main(arguments)
    finally:
        if own:
            import gc

            gc.freeze()  # or the interpreter's end would look through all of it once more: 15 ms
