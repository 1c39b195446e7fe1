"""The live view: what it shows of a recording that grows."""

from __future__ import annotations

import io
import time
from collections.abc import Callable

from rich.console import Console

from memlens.measurement.run.recording import Recording
from memlens.model import Process, Sample, Trace
from memlens.render.live import HISTORY, LiveView
from memlens.units import MIB

Run = Callable[[], Trace]


def shown(view: LiveView, recording: Recording) -> str:
    console = Console(file=io.StringIO(), width=80, force_terminal=False)
    console.print(view.view(recording))
    return console.file.getvalue()  # type: ignore[attr-defined]


def test_the_view_of_a_run(run: Run) -> None:
    """Now and peak of all together, a row for each living process, and the lines where memory grew."""
    recording = Recording(None, run())
    recording.top_lines = [("train.py:7", 12 * MIB)]
    view = LiveView(Console(file=io.StringIO(), width=80))
    recording.trace.events.pop()
    view(recording)
    text = shown(view, recording)
    assert "now 40.00 MiB  peak 40.00 MiB" in text
    assert [line.split() for line in text.splitlines() if "worker" in line] == [
        ["python", "worker.py", "8", "20.00", "MiB", "20.00", "MiB"]
    ]
    assert "train.py:7" in text
    assert "12.00 MiB" in text


def test_it_looks_at_what_is_new_only(run: Run) -> None:
    """A process that has ended is no longer held; the peak stays."""
    recording = Recording(None, run())
    view = LiveView(Console(file=io.StringIO(), width=80))
    view(recording)
    recording.add(Sample(9_000_000, 7, 5 * MIB))
    view(recording)
    assert "now 5.00 MiB" in shown(view, recording)


def test_a_long_run_keeps_a_short_history() -> None:
    """Ten thousand ticks are held in at most HISTORY points, the highest among them kept."""
    recording = Recording(None, Trace("measured", processes=[Process(1, "p")]))
    view = LiveView(Console(file=io.StringIO(), width=80))
    for tick in range(10_000):
        recording.trace.events.append(Sample(tick + 1, 1, 999 if tick == 3333 else 1))
        view._look(recording.trace)
    assert len(view._history) <= HISTORY
    assert max(view._history) == 999
    assert view._history.count(999) == 1


def test_a_long_command_is_cut_and_the_figures_stay(run: Run) -> None:
    """The head is one line in a terminal of 80 columns, whatever the program's arguments are."""
    recording = Recording(None, run())
    recording.trace.metadata["command"] = "train.py " + "--option value " * 20
    view = LiveView(Console(file=io.StringIO(), width=80))
    view(recording)
    head = shown(view, recording).splitlines()[0]
    assert head.startswith("memlens train.py --option")
    assert "…" in head
    assert head.endswith("MiB")
    assert len(head) <= 80


def test_the_curve_says_what_time_it_spans(run: Run) -> None:
    """Its axis begins at 0 s and ends with the seconds since the first sample, at the last column."""
    recording = Recording(None, Trace("measured", processes=[Process(1, "p")]))
    view = LiveView(Console(file=io.StringIO(), width=80))
    begun = time.time_ns() // 1000 - 12_300_000
    for tick in range(40):
        recording.trace.events.append(Sample(begun + tick * 300_000, 1, MIB))
        view._look(recording.trace)
    lines = shown(view, recording).splitlines()
    axis = next(line for line in lines if "└" in line)
    assert axis.split() == ["└", "0", "s", "12.3", "s"]
    assert len(axis) == max(len(line) for line in lines if "┤" in line)
