"""How numbers come about: what is printed, worked out again, is the number."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from memlens.summaries.formulas import Formula
from memlens.summaries.summarise import summarise

pytestmark = pytest.mark.torch

LAYERS = {
    # layer, its inputs, the values that stand for its parameters
    "conv": (lambda: nn.Conv2d(3, 64, 3), (1, 3, 8, 8), "3 × 64 × 3 × 3 + 64"),
    "conv without bias": (lambda: nn.Conv2d(3, 64, 3, bias=False), (1, 3, 8, 8), "3 × 64 × 3 × 3"),
    "grouped conv": (lambda: nn.Conv2d(8, 16, 3, groups=4), (1, 8, 8, 8), "2 × 16 × 3 × 3 + 16"),
    "transposed conv": (lambda: nn.ConvTranspose2d(8, 4, 2), (1, 8, 5, 5), "8 × 4 × 2 × 2 + 4"),
    "conv1d": (lambda: nn.Conv1d(4, 8, 5), (1, 4, 20), "4 × 8 × 5 + 8"),
    "linear": (lambda: nn.Linear(25088, 4096), (1, 25088), "25088 × 4096 + 4096"),
    "batch norm": (lambda: nn.BatchNorm2d(64), (2, 64, 4, 4), "2 × 64"),
    "layer norm": (lambda: nn.LayerNorm(32), (2, 32), "2 × 32"),
    "rms norm": (lambda: nn.RMSNorm(32), (2, 32), "32"),
    "group norm": (lambda: nn.GroupNorm(2, 8), (2, 8, 4), "2 × 8"),
    "attention": (lambda: nn.MultiheadAttention(16, 2), None, "3 × 16 × 16 + 3 × 16"),
    "lstm": (lambda: nn.LSTM(8, 16), (5, 2, 8), "4 × 16 × (8 + 16 + 2)"),
    "two-way gru": (
        lambda: nn.GRU(8, 16, 2, bidirectional=True),
        (5, 2, 8),
        "2 × (3 × 16 × (8 + 16 + 2)) + 2 × (3 × 16 × (32 + 16 + 2))",
    ),
    "lstm with projection": (
        lambda: nn.LSTM(8, 16, proj_size=4, bias=False), (5, 2, 8), "1 × (4 × 16 × (8 + 4) + 4 × 16)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_a_layers_formula(name: str) -> None:
    """The parameters' formula has the layer's own values, and every formula works out to its number."""
    make, shape, values = LAYERS[name]
    data = torch.ones(shape) if shape else [torch.ones(4, 2, 16)] * 3
    rows = summarise(make(), input_data=[data] if shape else data).rows
    formulas = {f.what: f for f in rows[0].formulas}
    assert formulas["params"].values == values
    assert formulas["params"].result == rows[0].params
    for row in rows:
        assert all(formula.check() for formula in row.formulas)
        kept = sum(formula.result for formula in row.formulas if formula.what == "kept")
        assert kept == row.kept_bytes
        for what, number in (("macs", row.macs), ("output", row.output_bytes)):
            assert all(f.result == number for f in row.formulas if f.what == what)


def test_an_embeddings_formula() -> None:
    """Rows times width."""
    row = summarise(nn.Embedding(1000, 64), input_data=torch.zeros(2, 8, dtype=torch.int64)).rows[0]
    assert row.formulas[0].values == "1000 × 64"


def test_attentions_multiply_adds() -> None:
    """Each query meets each key, and each weight each value: N x heads x L x S x (E + E)."""

    class Net(nn.Module):
        def forward(self, q: torch.Tensor) -> torch.Tensor:
            return nn.functional.scaled_dot_product_attention(q, q, q)

    row = summarise(Net(), input_data=torch.ones(2, 4, 16, 8)).rows[1]
    assert row.macs == 2 * 4 * 16 * 16 * (8 + 8)
    assert [f.values for f in row.formulas if f.what == "macs"] == ["2 × 4 × 16 × 16 × (8 + 8)"]


def test_a_wrong_formula_is_found() -> None:
    """The check itself fails on values that come to something else."""
    assert not Formula("params", "in × out", "2 × 3", 7).check()
