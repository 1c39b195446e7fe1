"""Multiply-accumulates: half of what torch's flop counter says of the same forward."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from memlens.summaries.summarise import summarise

pytestmark = pytest.mark.torch


class Bilinear(nn.Module):
    """Products written as operators: `@`, einsum, bmm, baddbmm, addmm."""

    def forward(self, x: Tensor) -> Tensor:
        y = torch.einsum("bij,bkj->bik", x, x) @ x
        y = torch.bmm(y, y.mT) + torch.baddbmm(y @ x.mT, x, x.mT)
        return torch.addmm(y[0], y[1], y[0])


NETS = {
    "conv": (lambda: nn.Conv2d(3, 8, 3, stride=2), (2, 3, 9, 9)),
    "grouped conv": (lambda: nn.Conv2d(8, 8, 3, groups=8), (2, 8, 9, 9)),
    "transposed conv": (lambda: nn.ConvTranspose2d(8, 4, 3, stride=2), (2, 8, 5, 5)),
    "conv3d": (lambda: nn.Conv3d(2, 4, 3), (1, 2, 5, 5, 5)),
    "linear": (lambda: nn.Linear(8, 16, bias=False), (4, 7, 8)),
    "gru": (lambda: nn.GRU(8, 16, 2, bidirectional=True), (5, 2, 8)),
    "rnn": (lambda: nn.RNN(8, 16), (5, 2, 8)),
    "operators": (Bilinear, (2, 6, 6)),
    "encoder": (lambda: nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), (2, 5, 16)),
}


@pytest.mark.parametrize("name", NETS)
def test_half_of_the_flop_counters(name: str) -> None:
    """On meta tensors the counter sees the products inside attention, too."""
    make, shape = NETS[name]
    model = make()
    macs = summarise(model, input_data=torch.ones(shape)).totals.macs
    with FlopCounterMode(display=False) as counter:
        model.to("meta")(torch.ones(shape, device="meta"))
    assert 2 * macs == counter.get_total_flops() > 0


def test_an_lstm_in_one_piece() -> None:
    """Four gates, two layers: every weight meets each of 5 x 2 positions once."""
    macs = summarise(nn.LSTM(8, 16, 2), input_data=torch.ones(5, 2, 8)).totals.macs
    assert macs == 5 * 2 * 4 * 16 * ((8 + 16) + (16 + 16))


def test_attention_by_each_kernel() -> None:
    """N x heads x L x S x (E + E), whichever kernel the card and the dtype choose."""

    class Net(nn.Module):
        def forward(self, q: Tensor) -> Tensor:
            return nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True)

    expected = 2 * 4 * 64 * 64 * (32 + 32)
    for dtype in (torch.float32, torch.bfloat16):
        for card in ("A100 80GB", "T4"):
            data = torch.ones(2, 4, 64, 32, dtype=dtype)
            assert summarise(Net(), input_data=data, gpu=card).totals.macs == expected
