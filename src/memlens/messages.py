"""Where text goes: what can be written to, and what to do with progress that nobody asked for."""

from __future__ import annotations

from typing import Protocol


class Writable(Protocol):
    """What takes text, as an open file does: `sys.stdout`, `io.StringIO`, a logger's adapter."""

    def write(self, text: str, /) -> object: ...


def ignore(text: str) -> None:
    """Progress that nobody asked for."""
