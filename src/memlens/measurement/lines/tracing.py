"""Where line events come from: `sys.monitoring` on Python 3.12 and newer, `sys.settrace` on 3.11.

Both watch code objects on request, so code that nobody watches runs at full speed, and both leave no trace:
the tool id is given back, the tracer that was there before is put back.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from opcode import opmap
from types import CodeType, FrameType
from typing import Any, Protocol

from memlens.errors import MemlensError
from memlens.measurement.lines.frames import Frames

monitoring: Any = getattr(sys, "monitoring", None)  # Python 3.12 and newer
PAUSES = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
# debugger 0, coverage 1, profiler 2 and optimizer 5 are spoken for; 3 and 4 are anybody's
TOOL_IDS = (3, 4, 2, 5, 1, 0)


class Discoverer(Protocol):
    """Who wants to watch what was not there when it was switched on: `lines.LineProfiler` of whole files."""

    def covers(self, file: str) -> bool: ...
    def discover(self, code: CodeType) -> bool: ...


def take_tool(name: str) -> int | None:
    """One of Python's monitoring tools, taken under a name; None where all are in use."""
    for tool in TOOL_IDS:
        if monitoring.get_tool(tool) is None:
            with suppress(ValueError):  # another thread was quicker
                monitoring.use_tool_id(tool, name)
                return tool
    return None


class Watch:
    """Which code objects are watched, and by how many; the discoverers may add a code when it first runs."""

    def __init__(self, frames: Frames) -> None:
        self.frames = frames
        self.codes: Counter[CodeType] = Counter()
        self.discoverers: list[Discoverer] = []
        self.lock = threading.RLock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.after_fork)

    def after_fork(self) -> None:
        """In a forked child: the lock may have been held by a thread that is not here."""
        self.lock = threading.RLock()

    def discover(self, code: CodeType) -> bool:
        return bool([True for one in self.discoverers if one.discover(code)])  # all are asked


class Monitoring(Watch):
    """Events of the watched code objects only, beside any debugger, coverage or profiler."""

    tool: int | None = None

    def watch(self, codes: Iterable[CodeType], discoverer: Discoverer | None = None) -> None:
        events = monitoring.events
        local = events.LINE | events.PY_START | events.PY_RETURN | events.PY_YIELD | events.PY_RESUME
        with self.lock:
            tool = self._open()
            for code in codes:
                self.codes[code] += 1
                if self.codes[code] == 1:
                    monitoring.set_local_events(tool, code, local)
            if discoverer is not None:
                self.discoverers.append(discoverer)
                monitoring.restart_events()  # what an earlier discoverer did not want, this one may
                monitoring.set_events(tool, events.PY_UNWIND | events.PY_START)

    def unwatch(self, codes: Iterable[CodeType], discoverer: Discoverer | None = None) -> None:
        with self.lock:
            for code in codes:
                self.codes[code] -= 1
                if not self.codes[code]:
                    del self.codes[code]
                    if self.tool is not None:
                        monitoring.set_local_events(self.tool, code, 0)
            if discoverer is not None:
                self.discoverers.remove(discoverer)
            if not self.discoverers and self.tool is not None:
                monitoring.set_events(self.tool, monitoring.events.PY_UNWIND)
            if not self.codes and not self.discoverers:
                self._close()

    @contextmanager
    def thread(self) -> Iterator[None]:
        """While code runs on this thread for a decorated call: nothing to do, events are global."""
        yield

    def everywhere(self, on: bool) -> None:
        """For profilers that are switched on: nothing to do either."""

    def _open(self) -> int:
        if self.tool is not None:
            return self.tool
        events = monitoring.events
        tool = take_tool("memlens")
        if tool is None:
            names = ", ".join(str(monitoring.get_tool(tool)) for tool in sorted(TOOL_IDS))
            raise MemlensError(f"all of Python's monitoring tools are in use: {names}", hint="stop one")
        self.tool = tool
        for event, callback in self._callbacks().items():
            monitoring.register_callback(tool, event, callback)
        monitoring.set_events(tool, events.PY_UNWIND)
        return tool

    def _close(self) -> None:
        if self.tool is None:
            return
        monitoring.set_events(self.tool, 0)
        for event in self._callbacks():
            monitoring.register_callback(self.tool, event, None)
        monitoring.free_tool_id(self.tool)
        self.tool = None
        self.frames.open.clear()

    def _callbacks(self) -> dict[int, Callable[..., Any]]:
        events, frames, disable = monitoring.events, self.frames, monitoring.DISABLE
        getframe, watched, opened = sys._getframe, self.codes, self.frames.open

        def line(code: CodeType, number: int) -> object:
            frame = getframe(1)
            state = opened.get(id(frame)) or frames.begin(code, id(frame))
            if state is None:
                return None
            for begin, end in state.table.quiet:
                if begin <= frame.f_lasti < end:
                    return disable
            while state is not None:
                state.line(number)
                state = state.also
            return None

        def start(code: CodeType, offset: int) -> object:
            if code in watched or self.discover(code):
                frames.begin(code, id(getframe(1)))
                return None
            return disable

        def resume(code: CodeType, offset: int) -> None:
            frames.go_on(id(getframe(1)))

        def pause(code: CodeType, offset: int, value: object) -> None:
            frames.pause(id(getframe(1)))

        def end(code: CodeType, offset: int, value: object) -> None:
            if code in watched:
                frames.end(id(getframe(1)))

        return {
            events.LINE: line,
            events.PY_START: start,
            events.PY_RESUME: resume,
            events.PY_YIELD: pause,
            events.PY_RETURN: end,
            events.PY_UNWIND: end,
        }


class SetTrace(Watch):
    """The interpreter's trace function, on the threads and for the time that need it."""

    def __init__(self, frames: Frames) -> None:
        super().__init__(frames)
        self.raised: set[int] = set()
        self.foreign: set[str] = set()  # files in which nobody watches anything
        self.on_call = self._tracer()
        self.open = frames.open
        # kept: one made for each event would be the first to touch pages of the program's objects
        self.local = self.on_event
        self._before: list[tuple[Any, Any]] = []

    def watch(self, codes: Iterable[CodeType], discoverer: Discoverer | None = None) -> None:
        with self.lock:
            self.codes.update(codes)
            self.foreign.clear()
            if discoverer is not None:
                self.discoverers.append(discoverer)

    def unwatch(self, codes: Iterable[CodeType], discoverer: Discoverer | None = None) -> None:
        with self.lock:
            self.codes.subtract(codes)
            self.codes += Counter()  # drops what nobody watches any more
            if discoverer is not None:
                self.discoverers.remove(discoverer)

    @contextmanager
    def thread(self) -> Iterator[None]:
        """While code runs on this thread for a decorated call. The tracer of before is put back."""
        before, mine = sys.gettrace(), self.on_call
        if before is mine:
            yield
            return
        sys.settrace(mine)
        try:
            yield
        finally:
            if sys.gettrace() is mine:  # a debugger that came meanwhile stays
                sys.settrace(before)

    def everywhere(self, on: bool) -> None:
        """For profilers that are switched on: this thread, and those that start from now on."""
        if on:
            self._before.append((sys.gettrace(), threading.gettrace()))
            threading.settrace(self.on_call)
            sys.settrace(self.on_call)
        else:
            here, threads = self._before.pop()
            if sys.gettrace() is self.on_call:
                sys.settrace(here)
            threading.settrace(threads)

    def _tracer(self) -> Callable[[FrameType, str, object], Any]:
        """The thread's trace function. It is called for each call of any function: the name of a file is the
        cheapest to look up there is (a code object is hashed with its constants, each time)."""
        foreign, begin = self.foreign, self.begin

        def on_call(frame: FrameType, event: str, arg: object) -> Any:
            return None if frame.f_code.co_filename in foreign else begin(frame)

        return on_call

    def begin(self, frame: FrameType) -> Any:
        """A function is called in a file where somebody may watch it."""
        code, key = frame.f_code, id(frame)
        if code not in self.codes and not (self.discoverers and self.discover(code)):
            file = code.co_filename
            watched = any(other.co_filename == file for other in self.codes)
            if not watched and not any(one.covers(file) for one in self.discoverers):
                self.foreign.add(file)
            return None
        if code.co_flags & PAUSES and key in self.frames.open:
            self.frames.go_on(key)
            return self.local
        return self.local if self.frames.begin(code, key) is not None else None

    def on_event(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            state = self.open.get(id(frame))
            while state is not None:
                state.line(frame.f_lineno)
                state = state.also
            if not self.raised:
                return self.local
        elif event == "return":
            if pauses(frame) and id(frame) not in self.raised:
                self.frames.pause(id(frame))
            else:
                self.frames.end(id(frame))
                self.raised.discard(id(frame))
            return self.local
        if self.raised:
            self.raised.discard(id(frame))
        if event == "exception":
            self.raised.add(id(frame))
        return self.local


def pauses(frame: FrameType) -> bool:
    """Whether a `return` event is a yield or an await: the frame stands at one."""
    code = frame.f_code
    return bool(code.co_flags & PAUSES) and code.co_code[frame.f_lasti] == opmap["YIELD_VALUE"]


FRAMES = Frames()
TRACER: Monitoring | SetTrace = Monitoring(FRAMES) if monitoring is not None else SetTrace(FRAMES)
