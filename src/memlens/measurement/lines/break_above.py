"""A debugger where memory passes a limit: memory_profiler's `--pdb-mmem` and `max_mem`."""

from __future__ import annotations

import os
import pdb
import sys
import threading
from collections.abc import Callable, Iterable
from types import CodeType, FrameType
from typing import Any

from memlens.measurement.host.meters import ALIASES
from memlens.measurement.host.own_process import own_rss_bytes, pss_bytes, uss_bytes
from memlens.measurement.lines.profiler import code_of
from memlens.units import format_bytes

_READ: dict[str, Callable[[], int | None]] = {"pss": pss_bytes, "uss": uss_bytes}


class StopAbove:
    """Opens pdb, once, at the first line of a watched function that begins above `limit_bytes`.

    `files` are watched whole. The tracer that was there before is put back.
    """

    def __init__(
        self,
        limit_bytes: int,
        backend: str | None = None,
        files: Iterable[str] = (),
        debugger: Callable[[], Any] = pdb.Pdb,
    ) -> None:
        self.limit_bytes, self.debugger = limit_bytes, debugger
        self.read = _READ.get(ALIASES.get(backend or "rss", backend or "rss"), own_rss_bytes)
        self.files = frozenset(os.path.abspath(file) for file in files)
        self.codes: set[CodeType] = set()
        self.stopped = False
        self._before: list[tuple[Any, Any]] = []

    def add_function(self, function: Any) -> None:
        """Watch a function, or anything that wraps one."""
        self.codes.add(code_of(function))

    def enable(self) -> None:
        self._before.append((sys.gettrace(), threading.gettrace()))
        threading.settrace(self._call)
        sys.settrace(self._call)

    def disable(self) -> None:
        here, threads = self._before.pop()
        if sys.gettrace() == self._call:
            sys.settrace(here)
        threading.settrace(threads)

    def _call(self, frame: FrameType, event: str, arg: object) -> Any:
        code = frame.f_code
        watched = code in self.codes or (self.files and os.path.abspath(code.co_filename) in self.files)
        return self._line if watched and not self.stopped else None

    def _line(self, frame: FrameType, event: str, arg: object) -> Any:
        if self.stopped or event != "line" or (size := self.read() or 0) <= self.limit_bytes:
            return self._line
        self.stopped = True
        sys.stderr.write(
            f"memlens: {format_bytes(size)} are in use, above the limit of {format_bytes(self.limit_bytes)}: "
            f"a debugger at line {frame.f_lineno} of {frame.f_code.co_qualname}\n"
        )
        debugger = self.debugger()
        debugger.set_trace(frame)
        return debugger.trace_dispatch(frame, event, arg)
