"""Answers in the hand: one line as repr, the command line's answer when printed, HTML, files, rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.predictions import prediction

import memlens
from memlens.advice.result import Advice
from memlens.answers import Answer
from memlens.errors import UsageError
from memlens.explanation.comparison import compare_traces
from memlens.explanation.explain import explain_trace
from memlens.model import Alloc, Category, Free, Process, Sample, Site, Trace
from memlens.records import load

HOSTILE = "<img src=x onerror=alert(1)>[red]/train.py"


def allocations() -> Trace:
    """Two allocations, one of them freed."""
    site = Site(HOSTILE, 12, module="layers.0", operator="mm")
    events = [Alloc(1, 1024, Category.PARAMETER, site, requested=1000), Alloc(2, 512), Free(2)]
    return Trace("predicted", events)


def run() -> Trace:
    """Two samples of one process."""
    samples = [Sample(0, 7, 1 << 20), Sample(1_000_000, 7, 2 << 20)]
    return Trace("measured", samples, processes=[Process(7, "train.py", ended_us=1_000_000)])


ANSWERS = {
    "prediction": prediction,
    "advice": lambda: Advice(prediction(), ()),
    "comparison": lambda: compare_traces(allocations(), allocations(), (HOSTILE, "b")),
    "explanation": lambda: explain_trace(allocations()),
    "allocations": allocations,
    "run": run,
    "many": lambda: Trace("measured", [Alloc(number, 512) for number in range(5000)]),
}


@pytest.fixture(params=ANSWERS)
def answer(request: pytest.FixtureRequest) -> Answer:
    made: Answer = ANSWERS[request.param]()
    return made


def test_a_repr_is_one_short_line(answer: Answer) -> None:
    """A list of answers, a debugger and a failed assertion stay readable."""
    assert len(repr(answer)) < 500
    assert "\n" not in repr(answer)
    assert repr(answer).startswith(f"<{type(answer).__name__}: ")


def test_printing_and_showing_are_the_same(
    answer: Answer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`print(x)` and `x.show()` have the same words; the second has the terminal's width and colours."""
    monkeypatch.setenv("COLUMNS", "90")
    answer.show()
    shown = capsys.readouterr().out.split()
    print(answer)
    assert capsys.readouterr().out.split() == shown
    assert len(shown) > 3


def test_html_holds_the_answer_and_escapes_it(answer: Answer) -> None:
    """A notebook shows the same figures; names in them stay text."""
    html = answer._repr_html_()
    assert "<img src=x" not in html
    first = str(answer).split()[0]
    assert first in html


def test_html_has_the_chart() -> None:
    """Where matplotlib is installed the course is a picture below the text."""
    pytest.importorskip("matplotlib")
    assert 'src="data:image/png;base64,iVBOR' in allocations()._repr_html_()
    assert "data:image" not in ANSWERS["comparison"]()._repr_html_()


def test_a_prediction_is_a_row() -> None:
    """Figures in bytes beside what was asked: rows of many predictions make a table."""
    (row,) = prediction().to_rows()
    assert row["process_bytes"] == prediction().peak.process_bytes
    assert row["parameters_bytes"] == prediction().breakdown[Category.PARAMETER]
    assert row["gpu"] == prediction().device.name


def test_allocations_are_rows() -> None:
    """Each with the events at which it came and went."""
    pandas = pytest.importorskip("pandas")
    frame = allocations().to_pandas()
    assert isinstance(frame, pandas.DataFrame)
    assert frame["bytes"].tolist() == [1024, 512]
    assert frame["requested_bytes"].tolist() == [1000, 0]
    assert frame["freed_at"].fillna(-1).tolist() == [-1, 2]
    assert run().to_pandas()["rss_bytes"].tolist() == [1 << 20, 2 << 20]


def test_files_by_their_ending(tmp_path: Path) -> None:
    """The same answer as JSON, text, rows, a page, a record and a picture."""
    shown = prediction()
    for ending in (".json", ".txt", ".csv"):
        shown.save(tmp_path / f"x{ending}")
    assert json.loads((tmp_path / "x.json").read_text()) == shown.to_dict()
    assert (tmp_path / "x.txt").read_text().splitlines()[0] == str(shown).splitlines()[0]
    assert (tmp_path / "x.csv").read_text().startswith("target,gpu,")
    allocations().save(tmp_path / "x.memlens")
    assert load(tmp_path / "x.memlens") == allocations()
    with pytest.raises(UsageError, match=r"cannot write 'x\.doc'"):
        shown.save(tmp_path / "x.doc")


def test_a_page_and_a_picture(tmp_path: Path) -> None:
    """What has a course over time; a comparison has none, and says so."""
    pytest.importorskip("matplotlib")
    allocations().report(tmp_path / "page.html")
    assert "</html>" in (tmp_path / "page.html").read_text()
    figure = run().plot(tmp_path / "x.svg")
    assert "<svg" in (tmp_path / "x.svg").read_text()
    assert figure.axes
    with pytest.raises(UsageError, match="has no course over time"):
        ANSWERS["comparison"]().plot()


@pytest.mark.torch
def test_what_needs_torch_is_an_answer_too() -> None:
    """A simulation shows who holds memory at its peak, a summary its table."""
    torch = pytest.importorskip("torch")
    with memlens.simulate("T4") as sim:
        assert repr(sim) == "<Simulation: Tesla T4, 0 B allocated now, 0 B at most, 0 B reserved>"
        held = torch.empty(1 << 20, device="cuda")
    assert "4.00 MiB allocated now" in repr(sim)
    assert "4.00 MiB allocated, 20.00 MiB reserved on Tesla T4" in str(sim)
    summary = memlens.summary(torch.nn.Linear(3, 4), (2, 3), verbose=0)
    assert repr(summary) == "<ModelSummary: Linear, 16 parameters, 1 layers>"
    assert summary.to_rows()[0]["params"] == 16
    del held
