"""A program and its descendants, sampled from outside: what each held at every tick."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from memlens.measurement.host.reading import Denied, Reader, Reading
from memlens.measurement.run.driver_processes import Gpus
from memlens.model import Process, Sample

# PSS and USS make the kernel walk a program's page tables (0.3 ms for a small one, 50 ms for 10 GB): they and
# NVML may take this share of the time, so that the program under measurement is not slowed by more
COSTLY_SHARE = 0.002


def now_us() -> int:
    """Unix time in microseconds: the clock of every sample, mark and span, in whichever process."""
    return time.time_ns() // 1000


@dataclass(slots=True)
class Pace:
    """Lets a costly reading through when its last cost is at most `share` of the time since."""

    share: float
    clock: Callable[[], float] = time.perf_counter
    _next: float = field(default=0.0, init=False)

    def due(self) -> bool:
        return self.clock() >= self._next

    @contextmanager
    def paid(self) -> Iterator[None]:
        """Around the reading: measures what it costs."""
        begun = self.clock()
        try:
            yield
        finally:
            end = self.clock()
            self._next = end + (end - begun) / self.share


class Sampler:
    """Follows one program. `tick` reads everybody once and returns what is new since the tick before.

    `every_share` reads PSS and USS at each tick, whatever it costs: for when they are the figure wanted.
    """

    def __init__(
        self, program: Process, reader: Reader, gpus: Gpus | None = None, every_share: bool = False
    ) -> None:
        self.program = program
        self.processes = {program.pid: program}
        self.denied: str | None = None
        self._reader = reader
        self.gpus = gpus
        self._shares_pace = Pace(COSTLY_SHARE)
        self._gpu_pace = Pace(COSTLY_SHARE)
        self._every_share = every_share
        self._twins: set[int] = set()  # new children that looked just like their parents at the last tick

    def tick(self, time_us: int) -> list[Process | Sample]:
        """New processes, one sample of each living one, and the processes that ended."""
        family = self._reader.family()
        readings = {pid: reading for pid in family if (reading := self._reader.read(pid)) is not None}
        gpu = self._read_gpus()
        items: list[Process | Sample] = []
        twins: set[int] = set()
        for pid, reading in readings.items():
            parent = family[pid]
            if pid not in self.processes and readings.get(parent or 0) == reading and pid not in self._twins:
                twins.add(pid)  # likely between vfork and exec: what it shows is its parent's memory
                continue
            items += self._meet(pid, parent, reading, time_us)
            sample = Sample(
                time_us, pid, reading.rss_bytes, swap_bytes=reading.swap_bytes, gpu_bytes=gpu.get(pid)
            )
            items.append(sample)
        self._twins = twins
        if self._every_share or self._shares_pace.due():
            with self._shares_pace.paid():
                self._add_shares(item for item in items if isinstance(item, Sample))
        living = {item.pid for item in items if isinstance(item, Sample)}
        gone = [pid for pid in self.processes if pid not in living and pid != self.program.pid]
        return items + [self._end(pid, time_us) for pid in gone]

    def finish(self, time_us: int, exit_code: int | None) -> list[Process]:
        """The program's end; its children may live on, and are given as they were last seen."""
        self.processes.pop(self.program.pid)
        self.program.ended_us, self.program.exit_code = time_us, exit_code
        self._reader.close()
        return [self.program, *self.processes.values()]

    def _meet(self, pid: int, parent: int | None, reading: Reading, time_us: int) -> list[Process | Sample]:
        process = self.processes.get(pid)
        if process is None:
            self.processes[pid] = Process(
                pid, self._name(pid), parent, time_us, peak_rss_bytes=reading.high_water_bytes
            )
            return [self.processes[pid]]
        # not the highest so far: before its exec a child shows the mark of its parent
        process.peak_rss_bytes = reading.high_water_bytes or process.peak_rss_bytes
        # a child is forked with its parent's name and takes its own when it executes a program
        young = time_us - process.started_us < 1_000_000 and process is not self.program
        if young and (name := self._name(pid)) != process.name:
            process.name = name
            return [process]
        return []

    def _name(self, pid: int) -> str:
        """A process's name; a child forked from the program, and running it on, has the program's."""
        name = self._reader.name(pid)
        return self.program.name if name == self._reader.name(self.program.pid) else name

    def _end(self, pid: int, time_us: int) -> Process:
        process = self.processes.pop(pid)
        process.ended_us = time_us
        return process

    def _add_shares(self, samples: Iterable[Sample]) -> None:
        for sample in samples:
            try:
                shares = self._reader.shares(sample.pid)
            except Denied as denied:
                self.denied = str(denied)
                continue
            if shares is not None:
                sample.pss_bytes, sample.uss_bytes = shares

    def _read_gpus(self) -> dict[int, int]:
        if self.gpus is None or not self.gpus.cards or not self._gpu_pace.due():
            return {}
        with self._gpu_pace.paid():
            return self.gpus.read()
