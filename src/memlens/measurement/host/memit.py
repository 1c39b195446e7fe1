"""How much memory one statement needs: what `%memit` shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from typing import Any

from memlens.measurement.host.memory_usage import memory_usage
from memlens.measurement.host.meters import meter
from memlens.units import MIB, format_mib


@dataclass(frozen=True)
class MemitResult:
    """Peaks in MiB, one for each run, and the memory in use before the first, as memory_profiler names them.

    `python_peaks` is what Python's own allocators held at their peak above their start, per run, where that
    was asked for: memory that an earlier run left free is counted there, and in the process's memory is not.
    """

    mem_usage: list[float]
    baseline: float
    repeat: int = 1
    timeout: float | None = None
    interval: float = 0.1
    include_children: bool = False
    python_peaks: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        peak = max(self.mem_usage)
        said = f"peak memory: {mib(peak)}, increment: {mib(peak - self.baseline)}"
        return said + (f", Python's own: {mib(max(self.python_peaks))}" if self.python_peaks else "")

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(str(self))

    def _repr_html_(self) -> str:
        return f"<code>{escape(str(self))}</code>"


def mib(size: float) -> str:
    return format_mib(size * MIB, grouped=False)


def memit(
    run: Callable[[], Any],
    *,
    repeat: int = 1,
    timeout: float | None = None,
    interval: float = 0.1,
    include_children: bool = False,
    python_level: bool = False,
) -> MemitResult:
    """Run a statement `repeat` times, once each, and say what it needed at most."""

    def usage(proc: Any) -> float:
        return float(memory_usage(proc, interval, timeout, include_children=include_children, max_usage=True))

    baseline, peaks, python = usage(-1), [], []
    for _ in range(repeat):
        if not python_level:
            peaks.append(usage((run,)))
            continue
        traced = meter("tracemalloc")
        watcher = traced.start()
        try:
            before, _ = traced.look(watcher)
            peaks.append(usage((run,)))
            python.append((traced.look(watcher)[1] - before) / MIB)
        finally:
            traced.stop(watcher)
    return MemitResult(peaks, baseline, repeat, timeout, interval, include_children, python)
