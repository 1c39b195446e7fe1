"""Reading processes where there is no /proc: macOS, Windows, the BSDs."""

from __future__ import annotations

import psutil

from memlens.measure.names import short_name
from memlens.measure.readers import Denied, Reading, Shares


class PsutilReader:
    """Any system that psutil knows. Every call survives a process that dies under it."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._processes: dict[int, psutil.Process] = {}

    def family(self) -> dict[int, int | None]:
        members: dict[int, int | None] = {}
        for known in list(self._processes.values()):
            if not known.is_running():
                self._processes.pop(known.pid, None)
        try:
            root = self._process(self._root)
            members[self._root] = None
            for child in root.children(recursive=True):
                self._processes.setdefault(child.pid, child)
        except psutil.Error:
            members.pop(self._root, None)
        for pid, process in list(self._processes.items()):
            try:
                members.setdefault(pid, process.ppid())
            except psutil.Error:
                self._processes.pop(pid, None)
        return members

    def read(self, pid: int) -> Reading | None:
        try:
            process = self._process(pid)
            info = process.memory_info()
            if process.status() == psutil.STATUS_ZOMBIE:
                return None
        except psutil.AccessDenied:
            return None
        except psutil.Error:
            return None
        # Windows keeps the peak working set; macOS and the BSDs keep none for another process
        return Reading(info.rss, None, getattr(info, "peak_wset", None))

    def shares(self, pid: int) -> Shares | None:
        try:
            info = self._process(pid).memory_full_info()
        except psutil.AccessDenied:
            raise Denied(f"process {pid} is another user's") from None
        except psutil.Error:
            return None
        return Shares(getattr(info, "pss", None), getattr(info, "uss", None))

    def name(self, pid: int) -> str:
        try:
            process = self._process(pid)
            try:
                return short_name(process.cmdline()) or process.name()
            except psutil.AccessDenied:
                return process.name()
        except psutil.Error:
            return f"process {pid}"

    def _process(self, pid: int) -> psutil.Process:
        if pid not in self._processes:
            self._processes[pid] = psutil.Process(pid)
        return self._processes[pid]
