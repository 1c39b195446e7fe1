"""The comparison with recorded figures: what it computes, and that its page is up to date."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from benchmarks.accuracy import truths  # noqa: E402
from benchmarks.accuracy.measure import NOT_WRITTEN, predicted_peak_mib, why_excluded  # noqa: E402
from benchmarks.accuracy.page import compare, percent, render, summary  # noqa: E402
from benchmarks.accuracy.programs import resnet50, transformer  # noqa: E402
from benchmarks.accuracy.truths import Row  # noqa: E402

pytestmark = pytest.mark.torch
PAGE = Path(__file__).parents[2] / "docs" / "accuracy.md"
ROW = Row(2, "cross_entropy", "torch", "full", {"BT": 1024, "V": 32_768}, 640.0, "NVIDIA B200", "2026-07-05")


def test_cross_entropy_holds_five_times_the_logits() -> None:
    """Logits, their gradient, log-softmax, and its and the loss' gradients; 8 KiB of targets, two scalars."""
    assert predicted_peak_mib(ROW) == pytest.approx(5 * 128 + 8 / 1024, abs=0.002)


def test_a_step_finds_the_gradients_of_the_one_before() -> None:
    """A feed-forward block in bfloat16: the same under backward alone and forward and backward."""
    sizes = {"bsz": 2, "hidden_size": 512, "intermediate_size": 1024, "hidden_act": "silu", "T": 1024}
    row = replace(ROW, kernel="swiglu", sizes=sizes | {"dtype": "torch.bfloat16"})
    assert predicted_peak_mib(replace(row, mode="backward")) == predicted_peak_mib(row)


def test_rows_without_a_workload_are_left_out_with_a_reason() -> None:
    """No row disappears in silence."""
    assert why_excluded(replace(ROW, kernel="fused_moe")) == NOT_WRITTEN
    compared, excluded = compare([replace(ROW, kernel="fused_moe")])
    assert (compared, excluded) == ([], Counter({("fused_moe", NOT_WRITTEN): 1}))


def test_under_predictions_are_counted() -> None:
    """Of four errors one is below zero by more than 1 %."""
    text = summary([0.0, 0.02, -0.05, 0.001])
    assert "4 rows" in text
    assert "25.0 % by more than 1 %" in text
    assert "the largest is -5.00 %" in text


def test_errors_are_signed() -> None:
    """And zero has no sign."""
    assert [percent(value) for value in (0.0123, -0.0123, -0.00001)] == ["+1.23 %", "-1.23 %", "0.00 %"]


@pytest.mark.shared
@pytest.mark.slow
def test_the_page_is_up_to_date(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/accuracy.md begins with what the benchmark writes today, on every build of torch."""
    monkeypatch.setenv("MEMLENS_SHARED", str(shared))
    truth = truths.folder()
    assert truth is not None
    figures = [*transformer(truth), *resnet50(truth)]
    assert PAGE.read_text().startswith(render(figures, *compare(truths.operator_rows(truth))))
