"""A card that holds what is expected, and not what libraries may take in addition."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import memlens  # noqa: E402
from memlens.devices import find_in_catalogue  # noqa: E402
from memlens.units import MIB  # noqa: E402

pytestmark = pytest.mark.torch

CARD = find_in_catalogue("A100 40GB").with_context(500 * MIB)  # only workspaces are uncertain


def predict(memory: int | None = None) -> memlens.Prediction:
    model = nn.Sequential(nn.Conv2d(8, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1))
    return memlens.predict(model, inputs=["8x64x64"], batch_size=64, gpu=CARD, memory=memory, loss="mean")


def test_a_card_between_expected_and_worst_may_not_do() -> None:
    """The replays have no limit, so the worst is known where the card could not hold it."""
    peak = predict().peak
    assert peak.low_reserved_bytes < peak.reserved_bytes < peak.high_reserved_bytes
    tight = predict((peak.process_bytes + peak.high_process_bytes) // 2)
    assert tight.fits
    assert tight.may_not_fit
    assert "may not fit" in tight.headline()
    assert tight.peak == peak
    roomy = predict(peak.high_process_bytes)
    assert not roomy.may_not_fit


def test_a_simulation_that_ran_out_still_states_its_range() -> None:
    """With `raise_oom` the trace ends in the middle: the replays end there, too."""
    with memlens.simulate(CARD, memory_bytes=1024 * MIB, raise_oom=True) as sim:
        x, w = (torch.empty(shape, device="cuda") for shape in ((64, 64, 64, 64), (64, 64, 3, 3)))

        def grow() -> None:
            kept = []
            while True:
                kept.append(nn.functional.conv2d(x, w, padding=1))

        with pytest.raises(torch.OutOfMemoryError):
            grow()
    (told,) = (a for a in sim.trace.assumptions if "convolution" in a.what)
    assert told.high_bytes >= 0 >= told.low_bytes
