"""Weights that are not read: what is said of how they would have come."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import memlens  # noqa: E402
from memlens.scenarios.shims.read_ahead import ahead, has_read_ahead, reading_ahead  # noqa: E402
from memlens.units import MIB  # noqa: E402

pytestmark = pytest.mark.torch


class Params4bit(nn.Parameter):
    """Named as bitsandbytes names a weight that is to be quantised."""


def model(vocabulary: int, layers: int) -> nn.Module:
    """An embedding of width 8 in float16, and linear layers of 64 weights."""
    weights = [nn.Parameter(torch.empty(vocabulary, 8, dtype=torch.float16))]
    weights += [Params4bit(torch.empty(8, 8, dtype=torch.float16)) for _ in range(layers)]
    module = nn.Module()
    for number, weight in enumerate(weights):
        module.register_parameter(str(number), weight)
    return module


def test_three_threads_read_ahead_of_the_embedding() -> None:
    """Three times its 1,600 bytes, in weights of 128; no more than all layers have."""
    assert ahead(model(100, 1000)) == [128] * 37
    assert ahead(model(100, 2)) == [128, 128]
    assert ahead(model(100, 0)) == []


def test_half_of_what_may_be_read_ahead_is_expected() -> None:
    """Four weights of 30 MiB: 60 MiB are there beside the model's 20, and it may be 0 or 120."""
    with memlens.simulate(gpu="T4") as sim, reading_ahead(sim, [30 * MIB] * 4):
        kept = torch.empty(20 * MIB, dtype=torch.uint8, device="cuda")
    (told,) = (a for a in sim.trace.assumptions if "read ahead" in a.what)
    assert sim.trace.timeline().peak_reserved_bytes == 80 * MIB
    assert told.what.startswith("half of the 4 weights")
    assert (told.low_bytes, told.high_bytes) == (-60 * MIB, 60 * MIB)
    assert told.allocated_range == (-60 * MIB, 60 * MIB)
    del kept


@pytest.mark.parametrize(
    ("version", "is_ahead"),
    [("4.57.1", False), ("5.0.0", True), ("5.3.0", True), ("5.4.0", False), ("5.17.0", False)],
)
def test_which_versions_read_ahead(version: str, is_ahead: bool) -> None:
    """Between the threads of 5.0 and the change in 5.4 that has quantisation read one after the other."""
    assert has_read_ahead(version) is is_ahead
