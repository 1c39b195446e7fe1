"""`mprofile_*.dat`, the record of `mprof`: read into a Trace and written from one.

A line each: `CMDLINE command`, `MEM mib seconds` (the program), `CHLD pid mib seconds` (a child),
`FUNC name mib seconds mib seconds level` (a call, at its start and end; old files have no level). Seconds are
Unix time. The program's own pid is not in the file; it is 0 in the trace.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from memlens.errors import RecordError
from memlens.model import FIGURES, Assumption, Process, Sample, Span, Trace
from memlens.units import MIB

EXTENSION = ".dat"
UNKNOWN_LEVEL = -1
PROGRAM = 0  # the pid of the program in an imported trace: the file does not tell the real one
_KINDS = (b"CMDLINE", b"MEM", b"FUNC", b"CHLD")


def sniff(head: bytes) -> bool:
    """Whether a file that begins with these bytes is an `mprof` record."""
    return head.split(None, 1)[:1] != [] and head.split(None, 1)[0] in _KINDS


def load(path: str | Path) -> Trace:
    """Read a .dat file. A torn last line is dropped with a note; another bad line is a RecordError."""
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8", "backslashreplace")
    except OSError as error:
        raise RecordError(f"cannot read {path}: {error.strerror}") from error
    lines = text.split("\n")
    torn = lines.pop()  # empty in a whole file: every line ends
    trace = Trace("imported", metadata={"format": "mprofile"})
    processes: dict[int, Process] = {}
    for number, line in enumerate(lines, 1):
        try:
            _read_line(trace, processes, line.split())
        except (ValueError, OverflowError) as error:
            raise RecordError(f"{path} is not an mprof record: line {number} says {line[:60]!r}") from error
    if torn:
        trace.assumptions.append(
            Assumption("the record ends early", f"its last line is torn: {torn[:60]!r} was dropped")
        )
    if not lines:
        raise RecordError(f"{path} is not an mprof record: it has no whole line")
    _find_levels(trace.spans)
    if PROGRAM in processes:
        processes[PROGRAM].name = trace.metadata.get("command", "program")
    trace.processes = sorted(processes.values(), key=lambda process: process.pid != PROGRAM)
    return trace


def _read_line(trace: Trace, processes: dict[int, Process], words: list[str]) -> None:
    match words:
        case []:
            return
        case ["CMDLINE", *command]:
            trace.metadata["command"] = " ".join(command)
        case ["MEM", size, seconds]:
            _sample(trace, processes, PROGRAM, size, seconds)
        case ["CHLD", pid, size, seconds]:
            _sample(trace, processes, int(pid), size, seconds)
        case ["FUNC", *name, size0, seconds0, size1, seconds1, level] if name and _is_whole(level):
            trace.spans.append(_span(name, size0, seconds0, size1, seconds1, int(level)))
        case ["FUNC", *name, size0, seconds0, size1, seconds1]:
            trace.spans.append(_span(name, size0, seconds0, size1, seconds1, UNKNOWN_LEVEL))
        case _:
            raise ValueError(words[0])


def _is_whole(text: str) -> bool:
    """Whether a word is a level, and not the time that ends an old line: those have a decimal point."""
    return text.isdecimal()


def _span(name: list[str], size0: str, seconds0: str, size1: str, seconds1: str, level: int) -> Span:
    times = _microseconds(seconds0), _microseconds(seconds1)
    return Span(" ".join(name), *times, _parse_bytes(size0), _parse_bytes(size1), level, PROGRAM)


def _find_levels(spans: list[Span]) -> None:
    """The level of calls whose line has none: in how many other calls they lie."""
    around: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.started_us, -span.ended_us)):
        while around and around[-1].ended_us < span.ended_us:
            around.pop()
        if span.level == UNKNOWN_LEVEL:
            span.level = len(around)
        around.append(span)


def _sample(trace: Trace, processes: dict[int, Process], pid: int, size: str, seconds: str) -> None:
    time_us = _microseconds(seconds)
    trace.events.append(Sample(time_us, pid, _parse_bytes(size)))
    if pid not in processes:
        parent = None if pid == PROGRAM else PROGRAM
        processes[pid] = Process(pid, f"Child {pid}", parent, time_us)
    processes[pid].ended_us = time_us


def _parse_bytes(mib: str) -> int:
    return round(float(mib) * MIB)


def _microseconds(seconds: str) -> int:
    return round(float(seconds) * 1_000_000)


class Writer:
    """Grows a .dat file that `mprof plot` opens too. `figure` is what counts as memory (rss, pss, ...).

    With `sum_children` the program's line is the sum over all its processes; else each child has its own.
    """

    def __init__(
        self, path: str | Path, head: Trace, figure: str = "rss", sum_children: bool = False
    ) -> None:
        self.path = Path(path)
        self._attribute = FIGURES[figure][0]
        self._sum = sum_children
        self._program: int | None = None
        try:
            self._file = open(self.path, "wb", buffering=0)  # noqa: SIM115  (closed by `close`)
        except OSError as error:
            raise RecordError(f"cannot write {self.path}: {error.strerror}") from error
        self._write(f"CMDLINE {head.metadata.get('command', '')}\n")

    def add(self, *items: Any) -> None:
        """Append samples and spans; the remainder of a trace has no place in this format."""
        for process in items:
            if isinstance(process, Process) and self._program is None:
                self._program = process.pid
        samples = [item for item in items if isinstance(item, Sample)]
        lines = [*self._samples(samples), *(_func(span) for span in items if isinstance(span, Span))]
        if lines:
            self._write("".join(lines))

    def metadata(self, **values: Any) -> None:
        """This format holds none."""

    def close(self) -> None:
        self._file.close()

    def _samples(self, samples: list[Sample]) -> Iterable[str]:
        sizes = [(s, size) for s in samples if (size := getattr(s, self._attribute)) is not None]
        if self._sum and sizes:
            yield f"MEM {_mib(sum(size for _, size in sizes))} {_seconds(sizes[0][0].time_us)}\n"
            return
        for sample, size in sizes:
            kind = "MEM" if sample.pid in (self._program, PROGRAM) else f"CHLD {sample.pid}"
            yield f"{kind} {_mib(size)} {_seconds(sample.time_us)}\n"

    def _write(self, text: str) -> None:
        size = self._file.tell()
        remaining = text.encode("utf-8", "backslashreplace")
        try:
            while remaining := remaining[self._file.write(remaining) :]:
                pass
        except OSError as error:
            self._file.truncate(size)
            self._file.close()
            raise RecordError(
                f"{self.path} could not grow beyond {size} bytes: {error.strerror}; "
                "what was recorded until then can be read"
            ) from error


def save(trace: Trace, path: str | Path, figure: str = "rss", sum_children: bool = False) -> None:
    """Write the samples and spans of a trace; what else it holds is not in this format."""
    writer = Writer(path, trace, figure, sum_children)
    try:
        by_time: dict[int, list[Sample]] = {}
        for event in trace.events:
            if isinstance(event, Sample):
                by_time.setdefault(event.time_us, []).append(event)
        writer.add(*trace.processes)
        for samples in by_time.values():
            writer.add(*samples)
        writer.add(*trace.spans)
    finally:
        writer.close()


def _func(span: Span) -> str:
    start, end = _mib(span.start_bytes), _mib(span.end_bytes)
    return (
        f"FUNC {span.name} {start} {_seconds(span.started_us)} {end} {_seconds(span.ended_us)} {span.level}\n"
    )


def _mib(size: int) -> str:
    return f"{size / MIB:.7f}"  # seven decimals of a MiB are less than a byte: nothing is lost


def _seconds(time_us: int) -> str:
    return f"{time_us / 1_000_000:.6f}"
