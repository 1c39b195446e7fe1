"""Where text goes: what can be written to, what can be written there, and progress that nobody asked for."""

from __future__ import annotations

from typing import Protocol


class Writable(Protocol):
    """What takes text, as an open file does: `sys.stdout`, `io.StringIO`, a logger's adapter."""

    def write(self, text: str, /) -> object: ...


def ignore(text: str) -> None:
    """Progress that nobody asked for."""


def printable(text: str) -> str:
    """`text` as every file and terminal takes it.

    A byte that was no UTF-8, which Python keeps as a lone surrogate, is spelt out.

    >>> printable(b"caf\\xe9.py".decode("utf-8", "surrogateescape")) == "caf" + chr(92) + "udce9.py"
    True
    """
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
