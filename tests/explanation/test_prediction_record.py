"""A prediction comes back out of its own record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.support.predictions import prediction

from memlens.explanation.prediction import Card
from memlens.explanation.prediction_record import recall, remember
from memlens.model import Alloc, Trace
from memlens.records import native


def test_a_saved_prediction_says_the_same(tmp_path: Path) -> None:
    """Every figure of the JSON contract is the same after writing and reading the record."""
    made = remember(prediction())
    native.save(made.trace, tmp_path / "x.memlens")
    found = recall(native.load(tmp_path / "x.memlens"))
    assert found is not None
    assert found.to_dict() == made.to_dict()


def test_cards_are_kept(tmp_path: Path) -> None:
    """Where no card was asked for, the answers of the whole catalogue come back."""
    made = remember(replace(prediction(asked=False), cards=(Card("T4", 1 << 34, 1 << 30, 2 << 30),)))
    native.save(made.trace, tmp_path / "x.memlens")
    found = recall(native.load(tmp_path / "x.memlens"))
    assert found is not None
    assert (found.fits, found.cards) == (None, made.cards)


@pytest.mark.parametrize(
    "kept",
    [
        None,
        {},
        [],
        "text",
        7,
        {"cards": []},
        {**remember(prediction()).trace.metadata["prediction"], "scenario": {"mode": "train"}},
    ],
)
def test_any_other_trace_is_no_prediction(kept: object) -> None:
    """A measured trace, or metadata that somebody else wrote, is not taken for one."""
    assert recall(Trace("measured", [Alloc(1, 512)], metadata={"prediction": kept})) is None
