"""What memlens says when it cannot do what was asked.

Every error restates the call, gives the numbers and offers a way out. The command line turns a
`MemlensError` into one line and exit code 2; in Python it is an ordinary exception.
"""

from __future__ import annotations


class MemlensError(Exception):
    """Something the caller can put right. `hint` is the way out, kept apart from what went wrong."""

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message


class UsageError(MemlensError):
    """The call itself is wrong: an unknown name, a bad shape, a negative batch."""


class RecordError(MemlensError):
    """A file is truncated, foreign, hostile or of a version this memlens does not know."""


class MissingExtra(MemlensError):
    """A library that this command needs is not installed."""

    def __init__(self, library: str, extra: str, need: str) -> None:
        super().__init__(
            f"{need} needs {library}, which is not installed",
            hint=f"pip install 'memlens[{extra}]'",
        )


class TargetError(MemlensError):
    """The model to look at could not be found, built or run."""


class UnsupportedOperator(MemlensError):
    """An operator whose output cannot be known without its data, or without a GPU."""


class UncountedTensor(MemlensError):
    """A tensor on the simulated device whose bytes no figure would count: never a silent zero."""
