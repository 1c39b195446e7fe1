"""Reading processes where there is no /proc: macOS, Windows, the BSDs."""

from __future__ import annotations

from contextlib import suppress

import psutil

from memlens.measurement.host.process_names import short_name
from memlens.measurement.host.reading import Denied, Reading, Shares


class PsutilReader:
    """Any system that psutil knows. Every call survives a process that dies under it.

    A process is looked up once and kept: psutil tells a later one with the same number from it.
    """

    def __init__(self, root: int) -> None:
        self._root = root
        self._processes: dict[int, psutil.Process] = {}
        with suppress(psutil.Error):  # gone already: it reads as None
            self._processes[root] = psutil.Process(root)

    def family(self) -> dict[int, int | None]:
        if (root := self._processes.get(self._root)) is not None:
            with suppress(psutil.Error):  # the program has ended; children that were seen are followed
                for child in root.children(recursive=True):
                    self._processes.setdefault(child.pid, child)
        members: dict[int, int | None] = {}
        for pid, process in list(self._processes.items()):
            with suppress(psutil.Error):
                if process.is_running():
                    members[pid] = None if pid == self._root else process.ppid()
            if pid not in members:
                del self._processes[pid]
        return members

    def read(self, pid: int) -> Reading | None:
        try:
            process = self._processes[pid]
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
            info = process.memory_info()
        except (KeyError, psutil.Error):
            return None
        # Windows keeps the peak working set; macOS and the BSDs keep none for another process
        return Reading(info.rss, None, getattr(info, "peak_wset", None))

    def shares(self, pid: int) -> Shares | None:
        try:
            info = self._processes[pid].memory_full_info()
        except psutil.AccessDenied:
            raise Denied(f"process {pid} is another user's") from None
        except (KeyError, psutil.Error):
            return None
        return Shares(getattr(info, "pss", None), getattr(info, "uss", None))

    def name(self, pid: int) -> str:
        try:
            process = self._processes[pid]
            try:
                return short_name(process.cmdline()) or process.name()
            except psutil.AccessDenied:
                return process.name()
        except (KeyError, psutil.Error):
            return f"process {pid}"

    def close(self) -> None:
        self._processes.clear()
