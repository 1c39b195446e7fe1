"""Reading processes from Linux' /proc, through kept file descriptors.

A reading takes some 10 us a process, and a descriptor can never show a later process with the same number.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from memlens.measurement.host.process_names import short_name
from memlens.measurement.host.reading import Denied, Reading, Shares

MOST_ENVIRONMENT = 1 << 21  # bytes; a quarter of an 8 MiB stack, which is what Linux allows at most
KEPT_DESCRIPTORS = 400  # of the 1,024 that Linux gives a process by default
_STATUS = {
    "rss": re.compile(rb"VmRSS:\s*(\d+) kB"),
    "high": re.compile(rb"VmHWM:\s*(\d+) kB"),
    "swap": re.compile(rb"VmSwap:\s*(\d+) kB"),
}
_PSS = re.compile(rb"^Pss:\s*(\d+) kB", re.MULTILINE)
_PRIVATE = re.compile(rb"^Private_\w+:\s*(\d+) kB", re.MULTILINE)


class LinuxReader:
    """/proc, with memory of what it saw: once a process is known as the program's, it stays so.

    A child that outlives its parent is handed to init; it was seen before and remains ours, or has the
    program's mark in its environment.
    """

    def __init__(self, root: int, proc: Path = Path("/proc"), mark: str = "") -> None:
        self._proc = str(proc)
        self._mark = b"\0" + mark.encode() + b"\0" if mark else b""
        self._ours: dict[int, int | None] = {root: None}
        self._seen: set[int] = {root}
        self._status: dict[int, int] = {}  # pid -> open descriptor of its status file
        self._since = (self._birth(root) or (0, 0))[1]

    def family(self) -> dict[int, int | None]:
        alive = {int(name) for name in os.listdir(self._proc) if name.isdigit()}
        for pid in self._ours.keys() - alive:
            self._forget(pid)
        born = {pid: birth for pid in alive - self._seen if (birth := self._birth(pid)) is not None}
        new = {pid: parent for pid, (parent, _) in born.items()}
        self._join(new)
        for pid in [pid for pid in new if born[pid][1] >= self._since and self._is_marked(pid)]:
            self._ours[pid] = new.pop(pid)
        self._join(new)
        self._seen = alive
        return dict(self._ours)

    def _join(self, new: dict[int, int]) -> None:
        """Take over the descendants of who is ours."""
        joined = True
        while joined:  # a child may have a lower number than its parent: until nobody joins
            joined = False
            for pid, parent in list(new.items()):
                if parent in self._ours:
                    self._ours[pid] = new.pop(pid)
                    joined = True

    def _is_marked(self, pid: int) -> bool:
        if not self._mark:
            return False
        try:
            return self._mark in b"\0" + self._file(pid, "environ", MOST_ENVIRONMENT)
        except OSError:
            return False  # another user's, or gone

    def read(self, pid: int) -> Reading | None:
        try:
            text = self._status_text(pid)
        except OSError:
            return None
        sizes = {
            key: int(match[1]) * 1024 for key, pattern in _STATUS.items() if (match := pattern.search(text))
        }
        if "rss" not in sizes:
            return None  # a zombie: its memory is gone, its number not yet
        return Reading(sizes["rss"], sizes.get("swap"), sizes.get("high"))

    def shares(self, pid: int) -> Shares | None:
        try:
            text = self._file(pid, "smaps_rollup")
        except PermissionError:
            raise Denied(f"process {pid} is another user's") from None
        except (ProcessLookupError, FileNotFoundError):
            return None
        pss = _PSS.search(text)
        if pss is None:
            return None
        return Shares(int(pss[1]) * 1024, sum(int(size) for size in _PRIVATE.findall(text)) * 1024)

    def name(self, pid: int) -> str:
        try:
            return short_name(self._file(pid, "cmdline").decode("utf-8", "replace").split("\0")) or (
                self._file(pid, "comm").decode("utf-8", "replace").strip()
            )
        except OSError:
            return f"process {pid}"

    def close(self) -> None:
        for descriptor in self._status.values():
            os.close(descriptor)
        self._status.clear()

    def _birth(self, pid: int) -> tuple[int, int] | None:
        """Its parent, and when it began, in the system's clock ticks."""
        try:
            # the name between parentheses may hold anything, also parentheses and spaces
            words = self._file(pid, "stat").rpartition(b")")[2].split()
            return int(words[1]), int(words[19])
        except (OSError, IndexError, ValueError):
            return None

    def _file(self, pid: int, name: str, size: int = 65536) -> bytes:
        descriptor = os.open(f"{self._proc}/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, size)
        finally:
            os.close(descriptor)

    def _status_text(self, pid: int) -> bytes:
        if pid not in self._status:
            if len(self._status) >= KEPT_DESCRIPTORS:
                return self._file(pid, "status")
            self._status[pid] = os.open(f"{self._proc}/{pid}/status", os.O_RDONLY | os.O_CLOEXEC)
        return os.pread(self._status[pid], 4096, 0)

    def _forget(self, pid: int) -> None:
        self._ours.pop(pid, None)
        if (descriptor := self._status.pop(pid, None)) is not None:
            os.close(descriptor)
