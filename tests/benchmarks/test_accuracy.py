"""The comparison with recorded figures: what it computes, and that its page is up to date."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from benchmarks.accuracy import measure, programs, reading  # noqa: E402
from benchmarks.accuracy.device_rows import flat_series, impossible_series  # noqa: E402
from benchmarks.accuracy.errors import Point, sum_up  # noqa: E402
from benchmarks.accuracy.job import Job, Predicted, Table  # noqa: E402
from benchmarks.accuracy.measure import NOT_WRITTEN, why_excluded  # noqa: E402
from benchmarks.accuracy.page import content, percent, render  # noqa: E402
from benchmarks.accuracy.run import Result, Store, in_mixed_order  # noqa: E402
from benchmarks.accuracy.truths import Row  # noqa: E402

pytestmark = pytest.mark.torch
FIGURES = Path(__file__).parents[2] / "docs" / "accuracy.json"
ROW = Row(2, "cross_entropy", "torch", "full", {"BT": 1024, "V": 32_768}, 640.0, "NVIDIA B200", "2026-07-05")


def peak_mib(row: Row) -> float:
    return measure.predict(row)["allocated"].mib


def result(key: str, measured: float, *predicted: float, **others: object) -> Result:
    """A result of one figure, as a run gives it."""
    figures = {"device": Predicted(*predicted), "reserved": Predicted(*(mib - 450 for mib in predicted))}
    made = Result("timm_a100", key, "net", {"device": measured}, figures, {}, "", 1.0, "code")
    return made._replace(**others)


def test_cross_entropy_holds_five_times_the_logits() -> None:
    """Logits, their gradient, log-softmax, and its and the loss' gradients; 8 KiB of targets, two scalars."""
    assert peak_mib(ROW) == pytest.approx(5 * 128 + 8 / 1024, abs=0.002)


def test_a_step_finds_the_gradients_of_the_one_before() -> None:
    """A feed-forward block in bfloat16: the same under backward alone and forward and backward."""
    sizes = {"bsz": 2, "hidden_size": 512, "intermediate_size": 1024, "hidden_act": "silu", "T": 1024}
    row = replace(ROW, kernel="swiglu", sizes=sizes | {"dtype": "torch.bfloat16"})
    assert peak_mib(replace(row, mode="backward")) == peak_mib(row)


def test_rows_without_a_workload_are_left_out_with_a_reason() -> None:
    """No row disappears in silence: neither one without a program nor one that failed."""
    assert why_excluded(replace(ROW, kernel="fused_moe")) == NOT_WRITTEN
    table = Table("timm_a100", "Nets", "Some nets.", lambda truth: [], lambda job: {})
    jobs = [
        Job("timm_a100", name, "net", None, {"device": 1.0}, why) for name, why in (("a", "flat"), ("b", ""))
    ]
    part = content(table, jobs, [result("b", 1.0, 1.0, 1.0, 1.0, left_out="failed: ValueError")])
    assert (part.jobs, part.results) == (1, [])
    assert part.left_out == Counter({"flat": 1, "failed: ValueError": 1})


def test_errors_are_summed_up() -> None:
    """Of four rows one is 5.5 % too low, two are in their interval, whose median width is 3 %."""
    rows = [
        (100.0, 94.5, 94.5, 94.5),
        (100.0, 102.0, 99.0, 103.0),
        (100.0, 100.0, 99.0, 101.0),
        (50, 51, 51, 53),
    ]
    found = sum_up([Point(str(n), "net", mib, Predicted(*rest)) for n, (mib, *rest) in enumerate(rows)])
    assert (found.rows, found.worst_row, found.worst) == (4, "0", pytest.approx(-0.055))
    assert (found.median, found.median_absolute) == pytest.approx((0.01, 0.02))
    assert (found.under_1_percent, found.under_5_percent, found.inside) == (0.25, 0.25, 0.5)
    assert found.interval_width == pytest.approx(0.03)


def test_errors_are_signed() -> None:
    """And zero has no sign."""
    assert [percent(value) for value in (0.0123, -0.0123, -0.00001)] == ["+1.23 %", "-1.23 %", "0.00 %"]


def test_a_series_that_does_not_grow_is_left_out() -> None:
    """The rule looks at the recording alone: a batch twice as large within nvidia-smi's step of 2 MiB."""
    sizes = {"flat": (2035, 2037), "grows": (2035, 2039), "single": (9000,)}
    rows = [
        {"model": name, "batch_size": str(8 << n), "device_used_peak_mib": str(mib)}
        for name, series in sizes.items()
        for n, mib in enumerate(series)
    ]
    assert flat_series(rows[::-1]) == {"flat"}


def test_series_that_take_less_than_their_tensors_did_not_run() -> None:
    """One figure below what fake tensors take leaves out all batches of the model."""
    rows = [
        {"model": name, "device_used_peak_mib": measured, "rival_faketensor_peak_mib": fake}
        for name, measured, fake in (("a", "2000", "400.5"), ("b", "3000", "900"), ("b", "3100", "3100.5"))
    ]
    assert impossible_series(rows) == {"b"}


def test_one_reading_gives_the_machines_context() -> None:
    """The smallest row is the reading, 1,500 - 550 MiB, and is not compared; the others get its context."""
    results = {
        "timm_a100": [
            result("small", 1500.0, 1000.0, 900.0, 1100.0),
            result("net", 3000.0, 2500.0, 2400, 2600),
        ]
    }
    assert reading.add_reading(results) == ("small", 950.0)
    small, net = results["timm_a100"]
    assert reading.FIGURE not in small.measured_mib
    assert net.predicted[reading.FIGURE] == (3000.0, 2650.0, 3350.0)  # both ranges, and 150 of kernels


def test_a_run_goes_on_where_it_was(tmp_path: Path) -> None:
    """Results are read back as they were; those of other code only where that is wanted."""
    store, done = Store(tmp_path), result("net", 3000.0, 2500.0, 2400.0, 2600.0)
    store.add(done)
    assert store.load("timm_a100") == {"net": done}
    assert store.load("timm_a100", "other code") == {}
    jobs = [Job("timm_a100", name, "net", None, {}) for name in "abcdef"]
    assert in_mixed_order(jobs) == in_mixed_order(jobs[::-1]) != jobs


def test_the_page_says_how_much_was_run() -> None:
    """A part of the rows, the share in the interval and its width, and what was left out."""
    table = Table("timm_a100", "Nets", "Some nets.", lambda truth: [], lambda job: {})
    jobs = [
        Job("timm_a100", name, "net", None, {"device": 1.0}, why)
        for name, why in (("net", ""), ("b", ""), ("c", "flat"))
    ]
    page = render([content(table, jobs, [result("net", 2000.0, 2100.0, 1900.0, 2200.0)])], None)
    assert "1 of 2 rows were run" in page
    assert "| timm_a100 | device | 1 | +5.00 % | 5.00 % |" in page
    assert "| 100 % | 15.0 % |" in page
    assert "- 1: flat" in page


@pytest.mark.shared
@pytest.mark.slow
@pytest.mark.parametrize("table", [programs.PROGRAMS, measure.OPERATORS], ids=lambda table: table.name)
def test_the_page_is_up_to_date(shared: Path, table: Table) -> None:
    """docs/accuracy.json has what is predicted today, on every build of torch."""
    written = json.loads(FIGURES.read_text())["tables"][table.name]["rows"]
    today = {
        job.key: {name: round(found.mib, 2) for name, found in table.predict(job).items()}
        for job in table.jobs(shared / "truth")
        if not job.left_out
    }
    assert {row["row"]: {k: v[0] for k, v in row["predicted_mib"].items()} for row in written} == today
