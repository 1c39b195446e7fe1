"""What the terminal shows of advice."""

from __future__ import annotations

import pytest
from tests.support.predictions import prediction

from memlens.advice.result import Advice, Advised, LargestBatch
from memlens.render.advice import batch_headline
from memlens.units import MIB


def test_advice_in_one_line() -> None:
    """The verdict, and the change that saves most; or the largest batch."""
    changes = tuple(
        Advised(name, "autocast", "", saves, 30 * MIB, 35 * MIB, True, True, "")
        for name, saves in (("accumulate", 5 * MIB), ("amp-bf16", 12 * MIB))
    )
    said = prediction(45 * MIB).headline()
    assert repr(Advice(prediction(45 * MIB), changes)) == f"<Advice: {said}; amp-bf16 saves 12.00 MiB>"
    largest = Advice(prediction(), (), largest_batch=LargestBatch(1200, 1, 1, None))
    assert largest.headline().endswith(": the largest batch is 1,200")


@pytest.mark.parametrize(
    ("needs", "said"),
    [
        (42 * MIB, "it needs 42.00 MiB, and 3.00 MiB stay free"),
        (39 * MIB, "it fits into 39.00 MiB, 3.00 MiB less than the card has\n  on the whole card the process "
         "grows to 42.00 MiB, what PyTorch keeps cached included"),
    ],
)  # fmt: skip
def test_the_largest_batch_agrees_with_its_prediction(needs: int, said: str) -> None:
    """Nothing "stays free" that PyTorch fills with its cache: predict says 42 MiB of this very batch."""
    found = LargestBatch(4, needs, 3 * MIB, 50 * MIB)
    shown = batch_headline(Advice(prediction(45 * MIB), (), largest_batch=found), found).plain
    assert said in shown
    assert shown.endswith("5 would need 50.00 MiB")
