"""A small display of a program while it runs: the curve, who holds memory, the lines where it grew."""

from __future__ import annotations

import time
from typing import Protocol

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from memlens.model import Process, Sample, Trace
from memlens.render.timeline import cell
from memlens.units import format_bytes

REFRESH_SECONDS = 0.25
CURVE_ROWS = 6
PROCESSES_SHOWN = 6
LINES_SHOWN = 5
HISTORY = 2048  # points; when there are more, neighbours become one, the higher


class Watched(Protocol):
    """What is shown: a recording that grows."""

    trace: Trace
    top_lines: list[tuple[str, int]]


class LiveView:
    """Call it at every tick; it looks at what is new and draws at most every REFRESH_SECONDS."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._drawn = 0.0
        self._seen = 0
        self._history: list[int] = []
        self._stride = 1  # ticks in one point of the history
        self._ticks = 0
        self._now: dict[int, int] = {}
        self._peaks: dict[int, int] = {}
        self._started_us = 0

    def __enter__(self) -> LiveView:
        self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()

    def __call__(self, recording: Watched) -> None:
        self._look(recording.trace)
        if time.monotonic() - self._drawn >= REFRESH_SECONDS:
            self._drawn = time.monotonic()
            self._live.update(self.view(recording), refresh=True)

    def say(self, text: str) -> None:
        """A line of the program's own output, above the display."""
        self._console.print(Text.from_ansi(text), soft_wrap=True)

    def _look(self, trace: Trace) -> None:
        new = [e for e in trace.events[self._seen :] if isinstance(e, Sample) and e.rss_bytes is not None]
        self._seen = len(trace.events)
        if not new:
            return
        self._started_us = self._started_us or new[0].time_us
        latest = new[-1].time_us
        self._now = {e.pid: e.rss_bytes or 0 for e in new if e.time_us == latest}
        for pid, size in self._now.items():
            self._peaks[pid] = max(self._peaks.get(pid, 0), size)
        self._remember(sum(self._now.values()))

    def _remember(self, size: int) -> None:
        if self._ticks % self._stride == 0:
            self._history.append(size)
        else:
            self._history[-1] = max(self._history[-1], size)
        self._ticks += 1
        if len(self._history) > HISTORY:
            pairs = zip(self._history[::2], [*self._history[1::2], 0], strict=False)
            self._history = [max(pair) for pair in pairs]
            self._stride *= 2

    def view(self, recording: Watched) -> RenderableType:
        """What the terminal shows now."""
        elapsed = (time.time_ns() // 1000 - self._started_us) / 1e6 if self._started_us else 0.0
        now, peak = sum(self._now.values()), max(self._history, default=0)
        figures = Text.assemble(
            f"  {elapsed:,.1f} s  ", (f"now {format_bytes(now)}", "bold"), f"  peak {format_bytes(peak)}"
        )
        command = Text(str(recording.trace.metadata.get("command", "")))
        command.truncate(max(self._console.width - len(figures) - len("memlens "), 10), overflow="ellipsis")
        head = Text.assemble(("memlens ", "bold"), command, figures)
        curve = self._curve(peak, elapsed)
        parts: list[RenderableType] = [head, curve, self._processes(recording.trace.processes)]
        if recording.top_lines:
            parts.append(_lines(recording.top_lines))
        return Group(*parts)

    def _curve(self, peak: int, elapsed: float) -> Text:
        width = max(self._console.width - 14, 20)
        count = len(self._history)
        columns = [
            max(self._history[place * count // width : (place + 1) * count // width] or [0])
            if count > width
            else (self._history[place] if place < count else 0)
            for place in range(width)
        ]
        rows = []
        for row in range(CURVE_ROWS, 0, -1):
            label = format_bytes(peak * row / CURVE_ROWS, precision=1) if row in (CURVE_ROWS, 1) else ""
            cells = "".join(cell(size, size, peak or 1, row, CURVE_ROWS) for size in columns)
            rows.append(f"{label:>10} ┤{cells}".rstrip())
        until = f"{elapsed:,.1f} s"
        drawn = min(max(count, len(until) + 6), width)
        rows.append(f"{'':>10} └ 0 s{until:>{drawn - 4}}")
        return Text("\n".join(rows), style="cyan", no_wrap=True)

    def _processes(self, processes: list[Process]) -> Table:
        table = Table(box=None, pad_edge=False, header_style="dim")
        for title in ("process", "pid", "now", "peak"):
            table.add_column(title, justify="left" if title == "process" else "right", no_wrap=True)
        names = {process.pid: process.name for process in processes}
        largest = sorted(self._now.items(), key=lambda item: -item[1])
        for pid, size in largest[:PROCESSES_SHOWN]:
            name = Text(names.get(pid, "?"))
            table.add_row(name, str(pid), format_bytes(size), format_bytes(self._peaks[pid]))
        if len(largest) > PROCESSES_SHOWN:
            rest = largest[PROCESSES_SHOWN:]
            table.add_row(f"{len(rest)} more", "", format_bytes(sum(size for _, size in rest)), "")
        return table


def _lines(lines: list[tuple[str, int]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("memory grew at (sampled)", no_wrap=True)
    table.add_column("by", justify="right")
    for where, size in lines[:LINES_SHOWN]:
        table.add_row(Text(where), format_bytes(size))
    return table
