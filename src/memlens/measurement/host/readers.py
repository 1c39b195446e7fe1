"""Reading other processes from outside: who belongs to a program, and what memory each holds."""

from __future__ import annotations

import os

from memlens.measurement.host.proc_reader import LinuxReader
from memlens.measurement.host.reading import Reader


def reader_for(pid: int, mark: str = "") -> Reader:
    """The reader of this system for a program and its descendants.

    `mark` is an entry of the program's environment that no other program has: by it, Linux tells descendants
    whose parent ended before they were first seen.
    """
    if os.path.exists(f"/proc/{os.getpid()}/status"):
        return LinuxReader(pid, mark=mark)
    from memlens.measurement.host.psutil_reader import PsutilReader

    return PsutilReader(pid)
