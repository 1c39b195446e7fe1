"""A record that grows: what was sampled and what the program said of itself become a trace and its file."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, Unpack

from memlens.errors import RecordError
from memlens.measurement.child.channel import Listener
from memlens.measurement.run.sampler import now_us
from memlens.model import Assumption, Mark, Process, Provenance, Sample, Span, Trace
from memlens.model.lines import LineTable, add_children

_SPAN_KEYS = ("started_us", "ended_us", "start_bytes", "end_bytes", "level")
TABLES_SECONDS = 2.0  # how often line tables are written at most


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

    def metadata(self, **values: Unpack[Provenance]) -> None:
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
