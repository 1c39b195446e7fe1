"""What a script finds where it is started from a terminal: a window of 80 by 24, a person who says yes."""

from __future__ import annotations

import builtins
import contextlib
import fcntl
import os
import pty
import re
import struct
import sys
import termios
from collections.abc import Callable, Iterator
from typing import Any

from memlens.patching import replaced

COLUMNS, LINES = 80, 24
_ENDS = b"\x04" * 1024  # each ends one read of what nobody types
_YES_OR_NO = re.compile(
    r"\by(es)?\b.{0,3}\bno?\b|\[y\]|\(y\)|\?\s*$|continue|proceed|overwrite", re.IGNORECASE
)


@contextlib.contextmanager
def keyboard() -> Iterator[int]:
    """A file descriptor for the standard input of a process: a terminal at which nobody types."""
    try:
        ours, theirs = pty.openpty()
    except OSError:  # a container without terminals
        ours, theirs = os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_RDONLY)
    else:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        os.write(ours, _ENDS)
    try:
        yield theirs
    finally:
        os.close(ours)
        os.close(theirs)


def answer_to(prompt: Any) -> str:
    """What a person who wants the script to run would type.

    >>> answer_to("Overwrite runs/1? [y/n] "), answer_to("Name of this run: ")
    ('y', '')
    """
    return "y" if _YES_OR_NO.search(str(prompt)) else ""


def answering(say: Callable[[str, str], None], questions: list[str]) -> replaced:
    """The script's questions are answered, and its window has a size, although its output goes to a file.

    Those whose answer is empty, for nobody knows a better one, are noted in `questions`.
    """

    def answer(prompt: Any = "", /) -> str:
        given = answer_to(prompt)
        print(prompt)
        if not given:
            questions.append(str(prompt).strip())
        say(
            f"the question {str(prompt).strip()!r} is answered with {given!r}",
            "nobody types while predicting; give the answer as an argument if it matters",
        )
        return given

    def refuse(*_: Any, **__: Any) -> Any:
        raise EOFError("nobody answers a debugger while predicting")

    def size(fd: int = 1, /) -> os.terminal_size:
        return os.terminal_size((COLUMNS, LINES))

    return replaced(
        {(builtins, "input"): answer, (sys, "breakpointhook"): refuse, (os, "get_terminal_size"): size}
    )
