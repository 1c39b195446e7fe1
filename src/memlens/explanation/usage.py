"""What a sampled run comes to: peaks by figure, for the program, its children and all together."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memlens.explanation.copy_on_write import Copied, find_copied
from memlens.explanation.curves import Curve, curves, total, unsampled_curves
from memlens.model import FIGURES

if TYPE_CHECKING:
    from memlens.model.trace import Process, Trace


@dataclass(frozen=True, slots=True)
class ProcessPeak:
    """The highest of one figure. `time_us` is since the start; None for a mark without a time.

    `readings` is how many there were: PSS, USS and GPU memory are read less often than RSS.
    """

    bytes: int
    time_us: int | None
    readings: int


@dataclass(frozen=True, slots=True)
class Usage:
    """The peaks of a run. `whole` is the program with its children, sampled at the same moments."""

    command: str
    started_us: int
    elapsed_us: int
    exit_code: int | None
    processes: list[Curve] = field(default_factory=list)  # by RSS, the program first
    program: dict[str, ProcessPeak] = field(default_factory=dict)  # figure -> peak
    whole: dict[str, ProcessPeak] = field(default_factory=dict)
    gpu_note: str | None = None
    largest_process_bytes: int | None = None  # by the system's count, where it is above every sample
    copied: Copied | None = None  # by forked workers, of what they shared

    def to_dict(self) -> dict[str, Any]:
        """For JSON: schema `memlens.usage/1`, sizes in bytes, times in seconds."""

        def peaks(known: dict[str, ProcessPeak]) -> dict[str, Any]:
            return {
                f"peak_{figure}_bytes": known[figure].bytes if figure in known else None for figure in FIGURES
            }

        return {
            "schema": "memlens.usage/1",
            "command": self.command,
            "exit_code": self.exit_code,
            "elapsed_seconds": self.elapsed_us / 1e6,
            "program": peaks(self.program),
            "with_children": peaks(self.whole),
            "largest_process_bytes": self.largest_process_bytes,
            "gpu_note": self.gpu_note,
            "copied_by_workers": self.copied.to_dict() if self.copied else None,
            "processes": [
                {
                    "pid": curve.pid,
                    "name": curve.name,
                    "parent": curve.parent,
                    "started_seconds": (curve.started_us - self.started_us) / 1e6,
                    "ended_seconds": (curve.ended_us - self.started_us) / 1e6,
                    "peak_rss_bytes": curve.peak_bytes,
                }
                for curve in self.processes
            ],
        }


def usage(trace: Trace) -> Usage:
    """Add up a sampled trace.

    >>> from memlens.model import Process, Sample, Trace
    >>> trace = Trace("measured", [Sample(0, 7, 100), Sample(10, 7, 120)])
    >>> trace.processes = [Process(7, "train.py", ended_us=20, peak_rss_bytes=130)]
    >>> usage(trace).program["rss"]
    ProcessPeak(bytes=130, time_us=None, readings=2)
    """
    by_figure = {figure: curves(trace, figure) for figure in FIGURES}
    processes = by_figure["rss"]
    known = processes or [curve for parts in by_figure.values() for curve in parts]
    lives: list[Process | Curve] = [*trace.processes, *known]
    started = min((life.started_us for life in lives), default=0)
    ended = max((life.ended_us or 0 for life in lives), default=started)
    first = known[0].pid if known else 0
    largest = trace.metadata.get("largest_process_bytes") or 0
    program, whole = {}, {}
    for figure, parts in by_figure.items():
        own = [curve for curve in parts if curve.pid == first]
        if own:
            program[figure] = _peak(own[0], started)
        if parts:
            whole[figure] = _peak(total(parts) if len(parts) > 1 else parts[0], started)
    if not known and (alone := unsampled_curves(trace)):
        program["rss"] = whole["rss"] = ProcessPeak(alone[0].peak_bytes, None, 0)
    return Usage(
        str(trace.metadata.get("command", "")),
        started,
        ended - started,
        trace.metadata.get("exit_code"),
        processes,
        program,
        whole,
        trace.metadata.get("gpu"),
        largest if largest > max((curve.peak_bytes for curve in processes), default=0) else None,
        find_copied(trace),
    )


def _peak(curve: Curve, started_us: int) -> ProcessPeak:
    size, time_us = curve.sampled_peak
    if curve.peak_bytes > size:
        return ProcessPeak(curve.peak_bytes, None, len(curve.bytes))
    return ProcessPeak(size, time_us - started_us, len(curve.bytes))
