"""Weights that are not read: what is said of how they would have come."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from memlens.scenarios.shims.weights import ahead_bytes, has_read_ahead  # noqa: E402

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
    """Three times its 1,600 bytes; no more than the 16-bit weights of all layers, 128 bytes each."""
    assert ahead_bytes(model(100, 1000)) == 3 * 100 * 8 * 2
    assert ahead_bytes(model(100, 2)) == 2 * 128
    assert ahead_bytes(model(100, 0)) == 0


@pytest.mark.parametrize(
    ("version", "ahead"),
    [("4.57.1", False), ("5.0.0", True), ("5.3.0", True), ("5.4.0", False), ("5.17.0", False)],
)
def test_which_versions_read_ahead(version: str, ahead: bool) -> None:
    """Between the threads of 5.0 and the change in 5.4 that has quantisation read one after the other."""
    assert has_read_ahead(version) is ahead
