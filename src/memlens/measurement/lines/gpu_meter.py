"""Meters of a CUDA device: PyTorch's own counters, exact to the byte, read between lines."""

from __future__ import annotations

import time

import torch

from memlens.measurement.host.meters import Meter, Watched, Watcher
from memlens.measurement.lines.cuda_peaks import KEPT
from memlens.measurement.lines.frames import Row
from memlens.measurement.tensors.watch import TensorWatch
from memlens.model.tensors import LiveTensor

# what the GPU columns of a line table are made of: our name -> the counter of torch.cuda.memory_stats
ALLOCATED, RESERVED, TENSORS, LEFT = "gpu allocated", "gpu reserved", "gpu tensors", "gpu left"
COUNTERS = {
    ALLOCATED: "allocated_bytes.all",
    RESERVED: "reserved_bytes.all",
    TENSORS: "allocation.all",
    LEFT: "allocation.all.allocated",
}
LOOKS = 200  # at the tensors alive, some 10 ms each, for the names of what lines left behind


# columns of one line are read some 2 us apart; an operator of torch's takes longer than this to begin
SHARED_NS = 5_000
clock = time.perf_counter_ns


class Device:
    """One card's counters: a reset of its peaks is told to all its meters first."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.meters: list[CounterMeter] = []
        self._stats: dict[str, int] = {}
        self._when = 0

    def read(self) -> dict[str, int]:
        """All counters now; every meter knows of the peaks since the last reading.

        One line asks once for each of its columns, at once: a single reading serves them.
        """
        if clock() - self._when < SHARED_NS:
            return self._stats
        stats = self._stats = KEPT.stats(self.index)
        new_peak = False
        for meter in self.meters:
            if meter.watchers:
                peak = stats.get(meter.peak, 0)
                if peak > stats.get(meter.current, 0):
                    meter.tell(peak)
                    new_peak = True
        if new_peak:
            KEPT.reset(self.index, stats)
        self._when = clock()
        return stats


class CounterMeter(Watched):
    """One counter that goes up and down, such as `allocated_bytes.all`; or one that only counts up."""

    exact = True

    def __init__(self, device: Device, name: str, counter: str) -> None:
        super().__init__()
        self.name, self.device = name, device
        goes_up_only = counter.endswith((".allocated", ".freed")) or "." not in counter
        self.current = counter if goes_up_only else f"{counter}.current"
        self.peak = counter if goes_up_only else f"{counter}.peak"
        device.meters.append(self)

    def open(self) -> None:
        KEPT.open()
        KEPT.reset(self.device.index, KEPT.stats(self.device.index))

    def close(self) -> None:
        KEPT.close()

    def look(self, watcher: Watcher) -> tuple[int, int]:
        now = int(self.device.read().get(self.current, 0))
        high, watcher.high = watcher.high, 0
        return now, max(high, now)


class LeavingRow(Row):
    """A line that looks, when it has allocated anything, which tensors are there that were not before."""

    __slots__ = ("_made", "left", "meter")

    def __init__(self, meter: LeavingMeter) -> None:
        self.meter = meter
        self.left: list[LiveTensor] = []
        self._made = 0
        super().__init__()

    @property
    def increment(self) -> int:
        return self._made

    @increment.setter
    def increment(self, value: int) -> None:
        if value > self._made:
            self.left += self.meter.came()
        self._made = value


class LeavingMeter(CounterMeter):
    """How many allocations were made; its rows know the tensors that each line left alive.

    A look takes some 10 ms, and the first of a call ten times that, so a process has `LOOKS` of them; a
    `LineProfiler` that is made begins anew.
    """

    def __init__(self, device: Device, name: str, counter: str) -> None:
        super().__init__(device, name, counter)
        self.watch: TensorWatch | None = None
        self.looks = LOOKS

    def open(self) -> None:
        super().open()
        if not self.looks:
            return
        self.watch = TensorWatch(torch.device("cuda", self.device.index))
        self.watch.take()

    def close(self) -> None:
        if self.watch is not None:
            self.watch.close()
            self.watch = None
        super().close()

    def new_row(self) -> LeavingRow:
        return LeavingRow(self)

    def came(self) -> list[LiveTensor]:
        """The tensors that came since the last look, as they are named now."""
        if self.watch is None or not self.looks:
            return []
        self.looks -= 1
        return [record.to_live_tensor() for record in self.watch.take().came]


_devices: dict[int, Device] = {}


def counter_meter(index: int, counter: str, name: str = "") -> CounterMeter:
    """The meter of a counter of device `index`: one for all who ask."""
    device = _devices.setdefault(index, Device(index))
    name = name or counter
    for meter in device.meters:
        if meter.name == name:
            return meter
    return (LeavingMeter if name == LEFT else CounterMeter)(device, name, counter)


def gpu_meters(gpu: int | bool, anew: bool = False) -> tuple[list[Meter], str]:
    """The meters of the GPU columns for True (the current device) or a number; or why there are none.

    `anew` gives the names of what lines leave behind a new budget of looks.
    """
    if not torch.cuda.is_available():
        return [], "no CUDA device answers"
    if gpu is not True and not 0 <= gpu < torch.cuda.device_count():
        return [], f"there is no CUDA device {gpu}: {torch.cuda.device_count()} answer"
    index = int(torch.cuda.current_device()) if gpu is True else int(gpu)
    meters = [counter_meter(index, counter, name) for name, counter in COUNTERS.items()]
    for meter in meters:
        if anew and isinstance(meter, LeavingMeter):
            meter.looks = LOOKS
    return [*meters], ""
