"""`memory_usage`: the memory of a process, or of this one while a function runs.

The function runs exactly once, on the thread that called; a thread takes the samples. No process is started
and no child is touched, and whatever the function raises reaches the caller at once.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

import psutil

from memlens.errors import UsageError
from memlens.measurement.host import own_process
from memlens.measurement.host.meters import Meter, Watcher, meter
from memlens.messages import Writable
from memlens.units import MIB

LEAST_INTERVAL_SECONDS = 1e-4  # a thread that samples without a pause would only measure itself


def memory_usage(
    proc: Any = -1,
    interval: float = 0.1,
    timeout: float | None = None,
    timestamps: bool = False,
    include_children: bool = False,
    multiprocess: bool = False,
    max_usage: bool = False,
    retval: bool = False,
    stream: Writable | None = None,
    backend: str | None = None,
    max_iterations: int | None = None,
) -> Any:
    """MiB that a process uses, every `interval` seconds.

    `proc` is a pid, -1 for this process, a `subprocess.Popen` (watched until it ends), or a function to run:
    `f`, `(f, args)` or `(f, args, kwargs)`. Returns a list of MiB; of (MiB, time) with `timestamps`; with
    `max_usage` the highest alone; with `retval` a pair of that and what the function returned; with
    `multiprocess` each sample is a list, this process first and then each child; with `stream` None, as the
    samples are written there as lines `MEM mib time`. `timeout` and `max_iterations` end the sampling, never
    the function.

    A sample taken while a function runs is the most that was in use since the sample before, so nothing that
    comes and goes between two is missed where the kernel keeps the peak (Linux).

    >>> usage, total = memory_usage((sum, ([1, 2],)), retval=True)
    >>> total, len(usage) >= 2
    (3, True)
    """
    if interval <= 0:
        raise UsageError(f"the interval between samples must be above 0 seconds, got {interval!r}")
    take = Samples(
        timestamps or stream is not None, include_children, multiprocess, max_usage, stream, backend
    )
    limit = iterations(interval, timeout, max_iterations)
    if isinstance(proc, subprocess.Popen):
        watch(proc.pid, take, interval, limit, alive=lambda: proc.poll() is None)
        return take.result()
    if isinstance(proc, int):
        pid = os.getpid() if proc == -1 else proc
        if not psutil.pid_exists(pid):
            raise UsageError(
                f"there is no process {pid}", hint="`ps` and the task manager list those there are"
            )
        watch(pid, take, interval, limit or 1, alive=lambda: True)
        return take.result()
    function, args, kwargs = call_of(proc)
    returned = run(take, max(interval, LEAST_INTERVAL_SECONDS), limit, lambda: function(*args, **kwargs))
    return (take.result(), returned) if retval and stream is None else take.result()


def iterations(interval: float, timeout: float | None, most: int | None) -> int | None:
    """How many samples to take at most."""
    by_time = None if timeout is None else max(1, int(timeout / interval))
    return min((n for n in (by_time, most) if n is not None), default=None)


def call_of(proc: Any) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """The function and its arguments from `f`, `(f,)`, `(f, args)` or `(f, args, kwargs)`."""
    if callable(proc):
        return proc, (), {}
    if isinstance(proc, tuple | list) and 1 <= len(proc) <= 3 and callable(proc[0]):
        args = proc[1] if len(proc) > 1 else ()
        return proc[0], tuple(args), dict(proc[2]) if len(proc) > 2 else {}
    raise UsageError(
        f"cannot measure {proc!r}", hint="give a pid, a Popen, a function, or (function, args, kwargs)"
    )


class Samples:
    """What was read so far, in the shape that was asked for."""

    def __init__(
        self,
        timestamps: bool,
        include_children: bool,
        multiprocess: bool,
        max_usage: bool,
        stream: Writable | None,
        backend: str | None,
    ) -> None:
        self.timestamps, self.include_children, self.multiprocess = timestamps, include_children, multiprocess
        self.max_usage, self.stream = max_usage, stream
        self.meter: Meter = meter(backend)
        self.watcher: Watcher | None = None
        self.values: list[Any] = []
        self.highest: Any = -1
        self.count = 0

    def take(self, pid: int) -> None:
        """One sample; none where the process is gone."""
        size = self.own() if pid == os.getpid() else size_of(pid, self.meter.name)
        if size is None:
            return
        self.count += 1
        wants_children = self.include_children or self.multiprocess
        children = child_sizes(pid, self.meter.name) if wants_children else []
        if self.include_children:
            size += sum(child for _, child in children)
        now = time.time()
        value: Any = (size / MIB, now) if self.timestamps else size / MIB
        if self.stream is not None:
            self.stream.write(f"MEM {size / MIB:.6f} {now:.4f}\n")
            if self.multiprocess:
                for child, held in children:
                    self.stream.write(f"CHLD {child} {held / MIB:.6f} {now:.4f}\n")
        elif self.max_usage:
            self.highest = max(self.highest, value) if self.count > 1 else value
        else:
            each = [value, *(held / MIB for _, held in children)]
            self.values.append(each if self.multiprocess else value)

    def own(self) -> int:
        if self.watcher is None:
            watcher = self.meter.start()
            try:
                return self.meter.look(watcher)[0]
            finally:
                self.meter.stop(watcher)
        return self.meter.look(self.watcher)[1]

    def result(self) -> Any:
        if self.stream is not None:
            return None
        return self.highest if self.max_usage else self.values


def size_of(pid: int, figure: str) -> int | None:
    """Another process's memory; tracemalloc sees only its own process, so there RSS stands in."""
    readers = {"pss": own_process.pss_bytes, "uss": own_process.uss_bytes}
    return readers.get(figure, own_process.rss_bytes)(pid)


def child_sizes(pid: int, figure: str = "rss") -> list[tuple[int, int]]:
    """(pid, bytes) of every living descendant that can be read; those that die meanwhile are left out."""
    try:
        children = psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []
    sizes = ((child.pid, size_of(child.pid, figure)) for child in children)
    return [(child, size) for child, size in sizes if size is not None]


def watch(pid: int, take: Samples, interval: float, limit: int | None, alive: Callable[[], bool]) -> None:
    """Samples of a process until it ends or there are enough."""
    done = 0
    while alive():
        take.take(pid)
        done += 1
        if limit is not None and done >= limit:
            return
        time.sleep(interval)


def run(take: Samples, interval: float, limit: int | None, call: Callable[[], Any]) -> Any:
    """Run `call` on this thread while another one samples; its result, or what it raises."""
    pid, stop = os.getpid(), threading.Event()

    def sample() -> None:
        while not stop.wait(interval):
            if limit is not None and take.count >= limit:
                return
            take.take(pid)

    take.watcher = take.meter.start()
    take.take(pid)
    thread = threading.Thread(target=sample, name="memlens-memory-usage", daemon=True)
    thread.start()
    try:
        return call()
    finally:
        stop.set()
        thread.join()
        if (limit is None or take.count < limit) and os.getpid() == pid:
            take.take(pid)
        take.meter.stop(take.watcher)
