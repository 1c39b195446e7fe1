"""Four nets of one size, whose users were told four different sizes: what the tools say, and the truth."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

from tests.support import nets

from memlens.summaries.other_tools import AGAIN, NOT_KEPT, OPERATOR, TWICE
from memlens.summaries.summarise import summarise
from memlens.summaries.summary import Summary
from memlens.units import MIB

pytestmark = pytest.mark.torch

SIZE = (3, 512, 704)
# net -> torchsummary's forward/backward size and total, and what backward really keeps, all in MiB
FOUR = {
    "Flat": (704.00, 708.55, 268.125),
    "Nested": (1056.00, 1060.55, 268.125),
    "Pooled": (350.62, 355.18, 208.65625),
    "Functional": (233.75, 238.30, 208.65625),
}


@pytest.fixture(scope="module")
def four() -> dict[str, Summary]:
    return {name: summarise(getattr(nets, name)(), inputs=SIZE) for name in FOUR}


@pytest.mark.parametrize("name", FOUR)
def test_torchsummary_and_the_truth(four: dict[str, Summary], name: str) -> None:
    """The numbers that torchsummary prints to two places, and the bytes that backward keeps."""
    passes, total, kept = FOUR[name]
    like = four[name].likes["torchsummary"]
    assert f"{like.forward_backward_mb:.2f}" == f"{passes:.2f}"
    assert f"{like.total_mb:.2f}" == f"{total:.2f}"
    assert f"{like.input_mb:.2f} {like.params_mb:.2f}" == "4.12 0.43"
    assert four[name].totals.params == 112_576
    assert four[name].totals.kept_bytes == kept * MIB


@pytest.mark.parametrize("name", FOUR)
def test_the_differences_add_up(four: dict[str, Summary], name: str) -> None:
    """Line by line, the page explains all that the tool counts and all that is kept."""
    like = four[name].likes["torchsummary"]
    assert sum(d.counted_bytes for d in like.differences) == like.forward_backward_mb * MIB
    assert sum(d.kept_bytes for d in like.differences) == four[name].totals.kept_bytes


def test_why_they_differ(four: dict[str, Summary]) -> None:
    """A container counts its last layer's output again, the last output is not kept, functions are unseen."""
    nested = {d.path: d.why for d in four["Nested"].likes["torchsummary"].differences if d.counted_bytes}
    assert nested["conv1"] == AGAIN.format("conv1.conv2")
    assert nested["conv1.conv1"] == TWICE
    assert nested["conv2.conv2"] == NOT_KEPT
    functional = four["Functional"].likes["torchsummary"].differences
    assert OPERATOR.format("relu") in {d.why for d in functional}


def test_functions_are_rows(four: dict[str, Summary]) -> None:
    """`F.max_pool2d` and `F.relu` stand under the net that calls them, and keep what the modules keep."""
    rows = {row.path: row for row in four["Functional"].rows}
    assert rows["/max_pool2d"].kept_bytes == (88 + 44) * MIB  # its input, and int64 indices of its output
    assert rows["/relu-4"].kept_bytes == 64 * 32 * 44 * 4
    modules = {row.path: row for row in four["Pooled"].rows}
    assert modules["pools.0"].kept_bytes == rows["/max_pool2d"].kept_bytes


def test_what_a_gpu_would_refuse_is_assumed_away_and_said(four: dict[str, Summary]) -> None:
    """`x.to("cpu")` in a forward fails on a GPU; the summary goes on as on the CPU, and says so."""
    said = {name: [a.what for a in summary.assumptions] for name, summary in four.items()}
    assert any("puts on the CPU" in what for what in said["Flat"])
    assert not any("puts on the CPU" in what for what in said["Pooled"])
