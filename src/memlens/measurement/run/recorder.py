"""Recording a program: sampled from outside, told from inside, written as it grows."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from memlens.errors import RecordError, UsageError
from memlens.measurement.child.channel import VARIABLE, Listener
from memlens.measurement.host.proc_reader import reader_for
from memlens.measurement.run import programs
from memlens.measurement.run.driver_processes import Gpus
from memlens.measurement.run.launch import Settings, Started
from memlens.measurement.run.sampler import Sampler, now_us
from memlens.model import Assumption, Mark, Process, Sample, Span, Trace
from memlens.model.lines import LineTable, add_children
from memlens.units import format_bytes

_SPAN_KEYS = ("started_us", "ended_us", "start_bytes", "end_bytes", "level")
TABLES_SECONDS = 2.0  # how often line tables are written at most
FIRST_INTERVAL = 0.005  # seconds; grows to the interval asked for, so that short programs have samples too


class Sink(Protocol):
    """A growing record: `records.native.Writer`, `records.mprofile.Writer`."""

    path: Path

    def add(self, *items: Any) -> None: ...
    def metadata(self, **values: Any) -> None: ...
    def close(self) -> None: ...


OpenSink = Callable[[Trace], Sink]  # opens a record that begins with what the trace knows by then


class Recording:
    """A trace that grows, and the file that grows with it. When the file cannot, the trace goes on."""

    def __init__(self, open_sink: OpenSink | None, trace: Trace) -> None:
        self.trace = trace
        self.sink: Sink | None = None
        self.sink_error: str | None = None
        if open_sink is not None:
            try:
                self.sink = open_sink(trace)
            except RecordError as error:
                self.sink_error = str(error)
        self.top_lines: list[tuple[str, int]] = []
        self._known: set[int] = set()  # id() of the processes in the trace, which keeps them alive
        self._tables: dict[
            int, list[LineTable]
        ] = {}  # pid -> line tables, as of the last time they were told
        self._tables_due = 0.0
        self.python_peaks: dict[
            str, int
        ] = {}  # pid -> the highest of Python's own memory, as tracemalloc has it
        self._silent: set[int] = set()  # processes that may have run more lines than they told

    def add(self, *items: Any) -> None:
        for item in items:
            match item:
                case Process():
                    if id(item) not in self._known:
                        self._known.add(id(item))
                        self.trace.processes.append(item)
                case Mark():
                    self.trace.marks.append(item)
                case Span():
                    self.trace.spans.append(item)
                case Assumption():
                    self.trace.assumptions.append(item)
                case _:
                    self.trace.events.append(item)
        self._write(lambda sink: sink.add(*items))

    @property
    def lines(self) -> list[dict[str, Any]]:
        """The program's line tables, then its children's added up, as `LineTable.to_dict()` gives them."""
        root = self.trace.processes[0].pid if self.trace.processes else None
        children = [table for pid, tables in self._tables.items() if pid != root for table in tables]
        tables = [*self._tables.get(root or 0, []), *add_children(children)]
        return [table.to_dict() for table in tables]

    def silent_children(self) -> int:
        """How many child processes ended before they had told all of their lines."""
        root = self.trace.processes[0].pid if self.trace.processes else None
        return len(self._silent - {root})

    def metadata(self, **values: Any) -> None:
        self.trace.metadata.update(values)
        self._write(lambda sink: sink.metadata(**values))

    def close(self) -> None:
        self._write(lambda sink: sink.close())

    def hear(self, listener: Listener) -> None:
        """Take in what the program said of itself."""
        self.add(*(item for message in listener.hear() if (item := self._understand(message)) is not None))
        if self._tables and time.monotonic() >= self._tables_due:
            begun = self.trace.processes[0].started_us
            # each time the whole tables: in a long run less and less often
            self._tables_due = time.monotonic() + max(TABLES_SECONDS, 0.1 * (now_us() - begun) / 1e6)
            self.metadata(lines=self.lines)

    def _understand(self, message: dict[str, Any]) -> Any:
        try:
            pid, time_us = int(message["pid"]), int(message["time_us"])
            match message["kind"]:
                case "mark":
                    return Mark(str(message["name"]), len(self.trace.events), time_us=time_us)
                case "span":
                    sizes = {key: int(message[key]) for key in _SPAN_KEYS}
                    return Span(name=str(message["name"]), pid=pid, **sizes)
                case "python":
                    self.python_peaks[str(pid)] = int(message["peak_bytes"])
                    return Sample(time_us, pid, python_bytes=int(message["bytes"]))
                case "peak":
                    return self._raise_peak(pid, int(message["bytes"]))
                case "lines":
                    self._tables[pid] = [LineTable.from_dict(table) for table in message["tables"]]
                    (self._silent.discard if message.get("complete") else self._silent.add)(pid)
                case "top":
                    self.top_lines = [(str(where), int(size)) for where, size in message["lines"]]
        except (KeyError, ValueError, TypeError):
            return None  # not from us: anybody may write to the channel
        return None

    def _raise_peak(self, pid: int, size: int) -> Process | None:
        for process in reversed(self.trace.processes):
            if process.pid == pid:
                process.peak_rss_bytes = max(process.peak_rss_bytes or 0, size)
                return process
        return None

    def _write(self, action: Callable[[Sink], None]) -> None:
        if self.sink is None:
            return
        try:
            action(self.sink)
        except RecordError as error:
            self.sink, self.sink_error = None, str(error)


OnTick = Callable[[Recording], None]


def watch(
    started: Started, settings: Settings, open_sink: OpenSink | None, on_tick: OnTick | None
) -> Recording:
    """Record a program that has just been started, to its end."""
    recording = Recording(open_sink, Trace("measured", metadata=_metadata(settings, started.program.words)))
    waiter = started.waiter
    root = Process(waiter.process.pid, programs.name(started.program), None, started.started_us)
    recording.add(root, *(Sample(time_us, root.pid, size) for time_us, size in started.seen))
    reader = reader_for(root.pid, f"{VARIABLE}={started.channel}")
    sampler = Sampler(root, reader, every_share=settings.figure in ("pss", "uss"))
    with Listener(started.channel) as listener:
        _follow(sampler, recording, settings, waiter.wait, lambda: recording.hear(listener), on_tick)
        while not waiter.wait(3600):
            pass  # the recording timed out; the program has not ended
        recording.hear(listener)
    ended = sampler.finish(now_us(), waiter.process.returncode)
    recording.metadata(largest_process_bytes=waiter.largest_process_bytes)
    if started.capture is not None:
        _add_allocations(recording, started.capture)
    _end(recording, sampler, ended)
    return recording


def _add_allocations(recording: Recording, capture: str) -> None:
    """What memray recorded, after the samples; a note where it recorded nothing that can be read."""
    from memlens.records import memray_capture  # needed by this alone

    try:
        exact = memray_capture.load(capture)
    except RecordError as error:
        recording.add(Assumption("no allocations were recorded", str(error)))
        return
    recording.add(*exact.assumptions, *(event for event in exact.events if not isinstance(event, Sample)))
    recording.metadata(
        allocations=exact.metadata["allocations"],
        peak_allocated_bytes=exact.metadata["peak_allocated_bytes"],
    )


def record_pid(
    pid: int, settings: Settings, open_sink: OpenSink | None = None, on_tick: OnTick | None = None
) -> Recording:
    """Record a running process until it ends, the timeout, or Ctrl-C; the process is left alone."""
    reader = reader_for(pid)
    if reader.read(pid) is None:
        raise UsageError(f"there is no process {pid}, or it is not ours to read")
    root = Process(pid, reader.name(pid), None, now_us())
    recording = Recording(open_sink, Trace("measured", metadata=_metadata(settings, [root.name])))
    recording.add(root)
    sampler = Sampler(root, reader, every_share=settings.figure in ("pss", "uss"))

    def wait(seconds: float) -> bool:
        time.sleep(seconds)
        return reader.read(pid) is None

    try:
        gone = _follow(sampler, recording, settings, wait, lambda: None, on_tick)
    except KeyboardInterrupt:
        gone = False
    _end(recording, sampler, sampler.finish(now_us(), None) if gone else [root])
    return recording


def _metadata(settings: Settings, words: Sequence[str]) -> dict[str, Any]:
    return {
        "command": shlex.join(words),
        "figure": settings.figure,
        "interval_s": settings.interval_s,
        "include_children": settings.include_children,
    }


def _follow(
    sampler: Sampler,
    recording: Recording,
    settings: Settings,
    wait: Callable[[float], bool],
    hear: Callable[[], None],
    on_tick: OnTick | None,
) -> bool:
    """Sample until the program ends (True) or the recording times out (False)."""
    begun = time.monotonic()
    interval = min(FIRST_INTERVAL, settings.interval_s)
    gpus_asked = False
    while True:
        tick = time.monotonic()
        recording.add(*sampler.tick(now_us()))
        hear()
        if on_tick is not None:
            on_tick(recording)
        if settings.timeout_s is not None and tick - begun >= settings.timeout_s:
            return False
        if wait(max(interval - (time.monotonic() - tick), 0.001)):
            return True
        interval = min(interval * 1.5, settings.interval_s)
        if not gpus_asked and tick - begun > 0.2:  # the driver's library takes its time to load
            sampler.gpus, gpus_asked = Gpus(), True


def _end(recording: Recording, sampler: Sampler, ended: list[Process]) -> None:
    recording.add(*ended)
    if sampler.denied:
        recording.add(Assumption("PSS and USS are not known for every process", sampler.denied))
    if silent := recording.silent_children():
        what = (
            f"{silent} child process{'es' if silent > 1 else ''} may have run more lines than the tables say"
        )
        recording.add(
            Assumption(what, "they ended without a word: by os._exit, a signal, or another program")
        )
    if recording.python_peaks:
        recording.metadata(python_peaks=recording.python_peaks)
    recording.metadata(
        exit_code=sampler.program.exit_code,
        gpu=_gpu_note(recording.trace, sampler.gpus),
        **({"top_lines": [list(line) for line in recording.top_lines]} if recording.top_lines else {}),
        **({"lines": recording.lines} if recording.lines else {}),
    )
    recording.close()


def _gpu_note(trace: Trace, gpus: Gpus | None) -> str | None:
    """Why there is no GPU figure; None if there is one."""
    if any(isinstance(event, Sample) and event.gpu_bytes is not None for event in trace.events):
        return None
    if gpus is None:
        return "the program was too short to ask the driver"
    if gpus.reason:
        return gpus.reason
    used = gpus.used_bytes()
    held = f"; {format_bytes(used)} are in use on all cards together" if used is not None else ""
    return f"the driver names no process of this program{held}"
