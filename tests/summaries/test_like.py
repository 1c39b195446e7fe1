"""The numbers of torchsummary 1.5.1 and torchinfo 1.8.0, as these tools printed them, and the explanation."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from tests.support import nets
from torch import nn

from memlens.summaries.other_tools import SUBTRACTED
from memlens.summaries.summarise import summarise
from memlens.units import MIB

pytestmark = pytest.mark.torch


class Attends(nn.Module):
    """A module that returns a tuple of two, between two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(512, 512), nn.Linear(512, 512)
        self.attend = nn.MultiheadAttention(512, 8, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.into(x)
        return self.out(self.attend(x, x, x)[0])


@pytest.mark.parametrize(("batch", "passes", "total"), [(1, 1023.50, 1025.63), (4, 1026.00, 1028.50)])
def test_torchsummary_multiplies_the_tensors_of_a_tuple(batch: int, passes: float, total: float) -> None:
    """64 x 512 times 64 x 64 elements; the other outputs are subtracted unless a batch is named."""
    like = summarise(Attends(), inputs=(64, 512), batch_size=batch).likes["torchsummary"]
    assert f"{like.forward_backward_mb:.2f} {like.total_mb:.2f}" == f"{passes:.2f} {total:.2f}"
    assert sum(d.counted_bytes for d in like.differences) == passes * MIB
    assert any(d.why == SUBTRACTED for d in like.differences) == (batch == 1)


def test_torchsummary_counts_a_layers_parameters_at_every_call() -> None:
    """Ten calls of 1,049,600 parameters: 40.04 MB, as it prints; in truth 4.00."""
    summary = summarise(nets.Again(10), inputs=(1024,), batch_size=4)
    like = summary.likes["torchsummary"]
    assert f"{like.params_mb:.2f} {like.total_mb:.2f}" == "40.04 40.37"
    assert f"{summary.totals.param_bytes / MIB:.2f}" == "4.00"


@pytest.mark.parametrize("layer", [nn.LSTM(8, 8), nets.Many()])
def test_where_torchsummary_itself_would_stop_is_said(layer: nn.Module) -> None:
    """A tuple in a tuple, or a dictionary, has no size: torchsummary fails there."""
    model = nn.Sequential(nn.Linear(8, 8), layer)
    assert summarise(model, inputs=(4, 8)).likes["torchsummary"].stops == "1"


@pytest.mark.parametrize(
    ("model", "data", "numbers"),
    [
        # forward/backward and params in 10^6 bytes, as torchinfo gives them
        (nets.Again(100), torch.ones(4, 1024), (3.2768, 4.1984)),
        (nets.Tied(), torch.zeros(1, 16, dtype=torch.int64), (0.136192, 0.512)),
        (nets.Outside(), torch.ones(4, 8), (0.000256, 0.000288)),
        (nn.LSTM(16, 32, 2, batch_first=True), torch.ones(4, 10, 16), (0.01024, 0.059392)),
        (nn.TransformerEncoderLayer(64, 4, batch_first=True), torch.ones(2, 10, 64), (0.3584, 1.058048)),
    ],
)
def test_torchinfo(model: nn.Module, data: torch.Tensor, numbers: tuple[float, float]) -> None:
    """Repeated layers, tied weights twice, parameters outside layers not, a tuple by its first tensor."""
    like = summarise(model, input_data=data).likes["torchinfo"]
    assert (like.forward_backward_mb, like.params_mb) == numbers
