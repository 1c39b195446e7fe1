"""Curves of predictions and snapshots: allocated and reserved, in the terminal and as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.desk import placed, sampled
from tests.support.predictions import training_trace

from memlens.errors import UsageError
from memlens.explanation.over_time import curves_to_draw, figure_of, phase_at
from memlens.model import Alloc, Mark, Trace
from memlens.render import plot
from memlens.render.timeline import draw, subject
from memlens.units import MIB


def test_what_is_drawn_of_a_trace() -> None:
    """Allocations where there is no process, else what the recording was for, if that is a figure."""
    assert figure_of(training_trace()) == figure_of(placed()) == "allocated"
    odd = sampled()
    assert figure_of(odd) == "rss"
    for name, figure in (("pss", "pss"), ("gone", "rss"), ([], "rss")):
        odd.metadata["figure"] = name
        assert figure_of(odd) == figure
    assert figure_of(Trace("measured")) == "rss"


def test_the_terminal_shows_allocated_and_what_is_reserved_besides() -> None:
    """20 MiB reserved from the start, 40 from event 5 on, of which 8 to 36 are allocated; phases below."""
    assert draw(training_trace(), figure="allocated", width=56, height=4, title="x").splitlines() == [
        "x",
        "allocated memory █ and reserved, unused ░",
        "  40.0 MiB ┤                      ░░░░░░░░░░░░░░░░░░░░░░",
        "           ┤                      ░░░░█████░░░░░░░░█████",
        "  20.0 MiB ┤░░░░░░░░░░░░░█████░░░░░░░░██████████████████",
        "           ┤░░░░░░░░████████████████████████████████████",
        "           └────────────────────────────────────────────",
        "            event 0                             event 10",
        "            └build       └backward 1      └forward 2",
        "            … and 3 shorter phases without room here",
    ]


def test_a_prediction_counts_events_and_a_snapshot_seconds() -> None:
    """The axis says which."""
    assert "event 10" in draw(training_trace(), figure="allocated")
    assert "3.00 s" in draw(placed(), figure="allocated")


def test_a_window_of_events() -> None:
    """Events 6 to 8 of the prediction: nothing of the build is left."""
    text = draw(training_trace(), figure="allocated", seconds=(6, 8))
    assert "event 6" in text
    assert "└build" not in text
    assert "└forward 2" in text


def test_the_title_names_both_peaks_and_the_phase() -> None:
    """36 of 40 MiB in backward of step 2; a run has its command."""
    assert subject(training_trace()) == "peak 36.00 MiB allocated in backward, step 2, 40.00 MiB reserved"
    assert subject(sampled()) == "python train.py"


def test_the_marks_of_a_recording_are_no_phases() -> None:
    """`before the recording` and `recording` are how a snapshot begins, not what the user did."""
    trace = placed()
    trace.metadata["baseline_events"] = 2
    trace.marks = [Mark("before the recording", 0), Mark("recording", 2), Mark("step", 3, 1)]
    assert [phase_at(trace, index) for index in (0, 2, 3)] == ["", "", "step 1"]
    assert "recording" not in draw(trace, figure="allocated")


def test_phases_without_room_are_counted() -> None:
    """Of fifty phases a line holds those that fit; how many are left is said."""
    trace = Trace("predicted", [Alloc(number, MIB) for number in range(100)])
    trace.marks = [Mark("forward", index, index) for index in range(0, 100, 2)]
    line, rest = draw(trace, figure="allocated", width=80).splitlines()[-2:]
    shown = line.count("└")
    assert shown >= 3
    assert rest.strip() == f"… and {50 - shown} shorter phases without room here"


def picture(*records: tuple[str, Trace], **options: Any) -> tuple[Any, list[str]]:
    """The axes and the legend's rows."""
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    figure = Figure()
    plot.draw(figure, records, kind="allocated", **options)
    legend = figure.axes[0].get_legend()
    return figure.axes[0], [text.get_text() for text in legend.get_texts()]


def test_a_picture_of_one_record_shows_what_memory_is_for() -> None:
    """Categories stacked, what lives longest first, and both curves with their peaks."""
    axes, rows = picture(("x", training_trace()))
    assert rows == [
        "unknown", "parameters", "optimizer state", "gradients", "activations",
        "allocated (peak 36.00 MiB)", "reserved (peak 40.00 MiB)",
    ]  # fmt: skip
    assert axes.get_xlabel() == "events: allocations and frees, in order"
    assert axes.get_title(loc="left").startswith("peak 36.00 MiB allocated")
    line = next(line for line in axes.lines if line.get_label().startswith("allocated"))
    assert (max(line.get_ydata()), line.get_drawstyle()) == (36.0, "steps-post")
    assert [text.get_text() for text in axes.texts][:2] == ["build", "forward 1"]


def test_a_picture_of_two_records_compares_them() -> None:
    """Two lines each, named; no areas that would hide each other."""
    axes, rows = picture(("a", placed()), ("b", placed()), title="both")
    assert rows[0] == "a, allocated (peak 32.00 MiB)"
    assert len(rows) == 4
    assert len(axes.collections) == 0
    assert axes.get_title(loc="left") == "both"


@pytest.mark.parametrize("ending", [".png", ".svg", ".pdf"])
def test_a_picture_in_each_format(ending: str, tmp_path: Path) -> None:
    """The format is that of the name's ending."""
    pytest.importorskip("matplotlib")
    plot.save([("x", placed())], tmp_path / f"x{ending}", kind="allocated")
    assert (tmp_path / f"x{ending}").stat().st_size > 5000


def test_what_cannot_be_drawn_together_is_refused() -> None:
    """Seconds beside events, growth a second of a prediction, a run as allocations."""
    with pytest.raises(UsageError, match="times and others, predictions, an order only"):
        picture(("a", placed()), ("b", training_trace()))
    with pytest.raises(UsageError, match="a slope is growth a second"):
        picture(("b", training_trace()), slope=True)
    with pytest.raises(UsageError, match="holds no allocated memory"):
        picture(("run", sampled()))
    assert "slope" in " ".join(picture(("a", placed()), slope=True)[1])


def test_a_picture_of_a_window_is_drawn_with_its_own_events() -> None:
    """From the second to the third second only: the 24 MiB are gone by then."""
    axes, _ = picture(("a", placed()), seconds=(2.5, 3))
    line = next(line for line in axes.lines if line.get_label().startswith("allocated"))
    assert max(line.get_ydata()) == 20.0


def test_curves_of_nothing() -> None:
    """An empty trace has no curve, and one without segments has only one."""
    assert curves_to_draw(Trace("measured"), "allocated") == []
    assert [curve.name for curve in curves_to_draw(Trace("predicted", [Alloc(1, 512)]), "allocated")] == [
        "allocated"
    ]
