"""Meters: what is in use now, and the most that was in use since the last look.

A short-lived allocation between two readings is what a sampler misses. Linux keeps the highest resident size
of a process and lets it be reset (`5` written to /proc/self/clear_refs: 0.6 us here), so the peak between
two looks is known without sampling. Where that is not permitted, a thread samples every millisecond and the
peak is "at least" its highest sample.

The kernel counts resident pages per CPU and adds them up lazily for the high-water mark: a peak may be off
by up to 32 pages (128 KiB) per CPU that the process ran on, more on machines with over 16 CPUs.
"""

from __future__ import annotations

import os
import threading
import time
import tracemalloc
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from memlens.errors import UsageError
from memlens.measurement.host import own_process

STATM_BYTES = 24  # 10 digits of pages mapped, 12 resident; asked for more, Python would copy what it got
CLEAR_REFS = "/proc/self/clear_refs"
SAMPLE_SECONDS = 0.001


class Watcher:
    """Somebody who wants to know peaks: the highest value seen since they last looked."""

    __slots__ = ("high",)

    def __init__(self) -> None:
        self.high = 0


class Meter(Protocol):
    """What line profiles read. `look` is (in use now, highest since this watcher's last look).

    `still` is a cheaper question: True where nothing can have grown since the last look, by anybody.
    """

    name: str
    exact: bool

    def start(self) -> Watcher: ...
    def stop(self, watcher: Watcher) -> None: ...
    def look(self, watcher: Watcher) -> tuple[int, int]: ...
    def still(self) -> bool: ...


class Watched:
    """A meter's watchers: who is told of a peak that a reset would make the others miss."""

    def __init__(self) -> None:
        self.watchers: list[Watcher] = []
        self.lock = threading.Lock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self.after_fork)

    def after_fork(self) -> None:
        """In a forked child: the lock may have been held by a thread that is not here."""
        self.lock = threading.Lock()

    def start(self) -> Watcher:
        watcher = Watcher()
        with self.lock:
            if not self.watchers:
                self.open()
            self.watchers.append(watcher)
        return watcher

    def stop(self, watcher: Watcher) -> None:
        with self.lock:
            self.watchers.remove(watcher)
            if not self.watchers:
                self.close()

    def tell(self, high: int) -> None:
        for watcher in self.watchers:
            if high > watcher.high:
                watcher.high = high

    def still(self) -> bool:
        """Nobody knows without a look."""
        return False

    def open(self) -> None:
        """Before the first watcher."""

    def close(self) -> None:
        """After the last."""


class HighWaterMeter(Watched):
    """Resident memory with true peaks: the kernel's own high-water mark, reset between looks.

    A page can only become resident by a fault, so while the fault counters stand still nothing grew and the
    mark needs no look. Raises OSError where the mark cannot be reset.
    """

    name = "rss"
    exact = True

    def __init__(self, clear_refs: str = CLEAR_REFS) -> None:
        super().__init__()
        import resource  # not on Windows

        self._usage: Callable[[int], Any] = resource.getrusage
        self._clear_refs = clear_refs
        self._text, self._page = own_process.kept_reader(own_process.STATM), own_process.PAGE_BYTES
        self._status = own_process.kept_reader("/proc/self/status")
        self.mark_bytes = self._floor = 0  # the highest since the last reset
        self._minor = self._major = -1  # page faults, when last looked at
        self._held: list[Any] = [None, None, None]
        self.highest_bytes = 0  # of this process's life: the resets would otherwise hide it
        self.open()

    def after_fork(self) -> None:
        super().after_fork()
        self.highest_bytes = self.mark_bytes = 0
        self.open()

    def open(self) -> None:
        self.highest_bytes = max(self.highest_bytes, self._status_mark())
        self._reset(self._resident())
        # what the process was before exec counts in ru_maxrss for ever, and hides marks below it
        peak = self._usage(0).ru_maxrss * 1024
        self._floor = peak if peak > self._status_mark() + (1 << 20) else 0
        self._minor = -1

    def _reset(self, now: int) -> None:
        if self.mark_bytes > self.highest_bytes:
            self.highest_bytes = self.mark_bytes
        # opened each time (2 us more): a kept number could by now be a file of the program's
        descriptor = os.open(self._clear_refs, os.O_WRONLY | os.O_CLOEXEC)
        try:
            os.write(descriptor, b"5")
        finally:
            os.close(descriptor)
        self.mark_bytes = now

    def _status_mark(self) -> int:
        """VmHWM, in bytes."""
        return int(self._status(4096).split(b"VmHWM:", 1)[1].split(None, 1)[0]) * 1024

    # What a reading makes is held until the next reading needs its blocks. Out of fresh ones it would now
    # and then be the first to touch a page that the program is about to use, and put it on another line.

    def still(self) -> bool:
        held = self._held
        held[0] = None
        usage: Sequence[float] = self._usage(0)
        held[0] = usage
        return usage[6] == self._minor and usage[7] == self._major

    def _resident(self) -> int:
        held = self._held
        held[1] = held[2] = None
        text = held[1] = self._text(STATM_BYTES)
        fields = held[2] = text.split(None, 2)
        return int(fields[1]) * self._page

    def look(self, watcher: Watcher) -> tuple[int, int]:
        now, held = self._resident(), self._held
        held[0] = None
        usage = held[0] = self._usage(0)
        if usage[6] != self._minor or usage[7] != self._major:
            # The page that was touched may have been by the objects made above, out of blocks that the
            # program's line left on the brink of a page: read again, so that it counts for that line.
            now = self._resident()
            self._minor, self._major = usage[6], usage[7]
            high = usage[2] * 1024
            if high == self._floor:
                high = self._status_mark()
            if high > self.mark_bytes:
                self.mark_bytes = high
        if self.mark_bytes > now:
            with self.lock:
                self.tell(self.mark_bytes)
                self._reset(now)
        high = watcher.high
        if high:
            watcher.high = 0
            if high > now:
                return now, high
        return now, now


class SampledMeter(Watched):
    """Any reader, its peaks sampled by a thread: at least the highest of the samples."""

    exact = False

    def __init__(self, name: str, read: Callable[[], int], seconds: float = SAMPLE_SECONDS) -> None:
        super().__init__()
        self.name, self._read, self._seconds = name, read, seconds
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        self._thread = threading.Thread(target=self._sample, name=f"memlens-{self.name}", daemon=True)
        self._thread.start()

    def after_fork(self) -> None:
        super().after_fork()
        if self.watchers:
            self.open()  # threads stay in the parent

    def close(self) -> None:
        self._thread = None  # its loop sees that it is no longer the one

    def _sample(self) -> None:
        me = threading.current_thread()
        while self._thread is me:
            self.tell(self._read())
            time.sleep(self._seconds)

    def look(self, watcher: Watcher) -> tuple[int, int]:
        now = self._read()
        high, watcher.high = watcher.high, 0
        return now, max(high, now)


class TracedMeter(Watched):
    """What Python's allocators handed out (tracemalloc): re-used memory counts, native memory does not."""

    name = "tracemalloc"
    exact = True

    def __init__(self) -> None:
        super().__init__()
        self._started = False

    def open(self) -> None:
        self._started = not tracemalloc.is_tracing()
        if self._started:
            tracemalloc.start(1)

    def close(self) -> None:
        if self._started:
            tracemalloc.stop()

    def look(self, watcher: Watcher) -> tuple[int, int]:
        now, high = tracemalloc.get_traced_memory()
        if high > now:
            self.tell(high)
            tracemalloc.reset_peak()
        high, watcher.high = watcher.high, 0
        return now, max(high, now)


def own_pss_bytes() -> int:
    """This process's proportional share, or its resident size where the system has no such figure."""
    return own_process.pss_bytes() or own_process.own_rss_bytes()


def own_uss_bytes() -> int:
    """What this process alone holds, or its resident size where the system has no such figure."""
    return own_process.uss_bytes() or own_process.own_rss_bytes()


def rss_meter() -> Meter:
    """Resident memory, with exact peaks where the kernel gives them."""
    try:
        return HighWaterMeter()
    except (ImportError, OSError, AttributeError, IndexError):
        return SampledMeter("rss", own_process.own_rss_bytes)


# backend, as memory_profiler's users type it -> how to make its meter. One of each per process: the
# kernel's mark and tracemalloc's peak are shared, and whoever resets one must tell the others.
METERS: dict[str, Callable[[], Meter]] = {
    "rss": rss_meter,
    "pss": lambda: SampledMeter("pss", own_pss_bytes, 0.01),
    "uss": lambda: SampledMeter("uss", own_uss_bytes, 0.01),
    "tracemalloc": TracedMeter,
}
ALIASES = {"psutil": "rss", "posix": "rss", "psutil_pss": "pss", "psutil_uss": "uss"}
_made: dict[str, Meter] = {}


def backend_name(backend: str | None) -> str:
    """The meter that a name stands for: rss if None. Raises UsageError for one that stands for none."""
    name = ALIASES.get(backend or "rss", backend or "rss")
    if name not in METERS:
        raise UsageError(
            f"memlens has no memory backend {backend!r}",
            hint=f"use one of {', '.join([*METERS, *ALIASES])}",
        )
    return name


def meter(backend: str | None = None) -> Meter:
    """This process's meter for a backend: rss if None, pss, uss, tracemalloc, or memory_profiler's names."""
    name = backend_name(backend)
    if name not in _made:
        _made[name] = METERS[name]()
    return _made[name]


def highest_bytes() -> int:
    """The highest RSS that this process's meter has seen, resets or not; 0 where it resets nothing."""
    made = _made.get("rss")
    return max(made.highest_bytes, made.mark_bytes) if isinstance(made, HighWaterMeter) else 0
