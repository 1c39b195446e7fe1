"""The command line: validate, call, render. `main` is where exceptions become exit codes."""

from memlens.cli.main import main

__all__ = ["main"]
