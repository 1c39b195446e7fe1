"""A run in the terminal, and in a few lines."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memlens.explanation.usage import usage
from memlens.model import Process, Sample, Trace
from memlens.render.timeline import describe, draw
from memlens.units import MIB

Run = Callable[[], Trace]

DRAWN = """\
train.py
resident memory (RSS), program █ and children ░
  40.0 MiB ┤              ░░░░░░░░
           ┤              ░░░░░░░░
  20.0 MiB ┤              ██████████████
           ┤████████████████████████████
           └────────────────────────────
            0.00 s                4.00 s
                   ▲ loaded

   20.0 MiB ├──────────────────────────┤
            python train.py (pid 7)
   20.0 MiB               ├──────┤
            python worker.py (pid 8)

  +10.0 MiB ├──────┤
            __main__.load
        0 B               ├──────├─────┤
            __main__.step, 2 calls"""


def test_the_drawing_of_a_run(run: Run) -> None:
    """The program solid, its child on top while it lived, lives and functions below at their columns."""
    assert draw(run(), width=40, height=4) == DRAWN


@pytest.mark.parametrize("width", [80, 200])
def test_no_line_is_wider_than_asked(run: Run, width: int) -> None:
    """80 and 200 columns are kept, and the curve uses them."""
    widths = [len(line) for line in draw(run(), width=width).splitlines()]
    assert max(widths) == width


def test_a_window_is_drawn_alone(run: Run) -> None:
    """Seconds 2 to 3: the axis says so, and only what touches it is drawn."""
    text = draw(run(), width=40, height=4, seconds=(2, 3))
    assert "2.00 s                3.00 s" in text
    assert "loaded" not in text


def test_a_figure_that_was_not_recorded_says_so(run: Run) -> None:
    """Nothing is drawn as 0."""
    assert draw(run(), figure="gpu") == "no GPU memory was recorded"


def test_many_children_do_not_push_the_curve_away(run: Run) -> None:
    """Twelve processes are listed, the others counted."""
    trace = run()
    for pid in range(100, 300):
        trace.processes.append(Process(pid, "w", 7, 1_000_000, 2_000_000))
        trace.events.append(Sample(1_000_000, pid, MIB))
    assert "… and 190 more processes" in draw(trace)


def test_a_run_in_a_few_lines(run: Run) -> None:
    """How it ended, the peaks of the program and of all, and why there is no GPU figure."""
    assert describe(usage(run())).splitlines() == [
        "train.py: exit code 0 after 4.00 s",
        "  peak resident memory (RSS)             20.00 MiB at 2.00 s; with its child 40.00 MiB",
        "  peak GPU memory                        n/a: no driver",
    ]


def test_a_figure_read_less_often_is_a_lower_bound(run: Run) -> None:
    """One PSS reading against three of RSS: at least that much, and it says how many readings there were."""
    trace = run()
    trace.events[0].pss_bytes = 5 * MIB  # type: ignore[union-attr]
    (line,) = [line for line in describe(usage(trace)).splitlines() if "PSS" in line]
    assert line.endswith("at least 5.00 MiB at 0.00 s; with its child 5.00 MiB (1 reading)")


@pytest.mark.parametrize(
    ("code", "says"), [(3, "exit code 3"), (-9, "ended by signal 9"), (None, "still runs")]
)
def test_how_it_ended(run: Run, code: int | None, says: str) -> None:
    """An exit code, a signal, or not at all."""
    trace = run()
    trace.metadata["exit_code"] = code
    assert describe(usage(trace)).startswith(f"train.py: {says} after")
