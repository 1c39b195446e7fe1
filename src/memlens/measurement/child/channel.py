"""What a program under `memlens run` says of itself: marks, spans, readings from inside.

A line of JSON each, appended with one `write` to a file that the environment names: any number of processes
may write, none can block, and a killed one leaves what it said. Standard library only: this file is also
loaded, by its path, into interpreters that have no memlens.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False  # `typing` takes 8 ms to import, and every program waits
if TYPE_CHECKING:
    from typing import Any

VARIABLE = "MEMLENS_CHANNEL"


def say(kind: str, **values: Any) -> bool:
    """Tell `memlens run`, if the program runs under it; False if it does not."""
    path = os.environ.get(VARIABLE)
    if not path:
        return False
    import json  # takes 4 ms, and most programs say nothing

    line = json.dumps({"kind": kind, "pid": os.getpid(), "time_us": time.time_ns() // 1000, **values})
    try:
        # opened each time: a program may close every descriptor, and get our number for a file of its own
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | getattr(os, "O_CLOEXEC", 0))
        try:
            os.write(descriptor, line.encode() + b"\n")
        finally:
            os.close(descriptor)
    except OSError:
        return False  # the recorder is gone, or its disk is full: the program goes on
    return True


def mark(name: str) -> None:
    """Put a named mark on the timeline of `memlens run`; does nothing outside it.

    >>> mark("epoch 1")
    """
    say("mark", name=str(name))


class Listener:
    """The recorder's end: reads what came since the last time. Lines that make no sense are counted."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115  (closed by `__exit__`)
        self._rest = b""
        self.unreadable = 0

    def hear(self) -> list[dict[str, Any]]:
        import json

        *lines, self._rest = (self._rest + self._file.read()).split(b"\n")
        said = []
        for line in lines:
            try:
                message = json.loads(line)
                message["kind"], message["pid"], message["time_us"]
            except (ValueError, TypeError, KeyError):
                self.unreadable += 1
            else:
                said.append(message)
        return said

    def __enter__(self) -> Listener:
        return self

    def __exit__(self, *exception: object) -> None:
        self._file.close()
