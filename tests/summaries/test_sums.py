"""Rows add up to totals, and totals are the prediction's: over nets that are generated."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from memlens import predict
from memlens.explanation.prediction import Prediction
from memlens.model import Alloc, Category, Free
from memlens.summaries.summarise import summarise
from memlens.summaries.view import fold

pytestmark = pytest.mark.torch

WIDTH = 12
LAYERS = {
    "linear": lambda: nn.Linear(WIDTH, WIDTH),
    "no bias": lambda: nn.Linear(WIDTH, WIDTH, bias=False),
    "frozen": lambda: nn.Linear(WIDTH, WIDTH).requires_grad_(False),
    "relu": nn.ReLU,
    # in place only on what backward does not need
    "relu in place": lambda: nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(inplace=True)),
    "gelu": nn.GELU,
    "sigmoid": nn.Sigmoid,
    "layer norm": lambda: nn.LayerNorm(WIDTH),
    "batch norm": lambda: nn.BatchNorm1d(WIDTH),
    "dropout": nn.Dropout,
    "identity": nn.Identity,
    "lstm": lambda: Recurrent(),
}


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.rnn(x.unsqueeze(0))[0].squeeze(0)


class Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.scale = inner, nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x) * self.scale


class Twice(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner, self.idle = inner, nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.inner(x), self.inner(x.sin())]).unflatten(0, (2, -1)).mean(0)


layers = st.sampled_from(sorted(LAYERS)).map(lambda name: LAYERS[name]())
nets = st.recursive(
    layers,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=4).map(lambda parts: nn.Sequential(*parts)),
        inner.map(Residual),
        inner.map(Twice),
    ),
    max_leaves=8,
)
generated = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def with_a_head(net: nn.Module) -> nn.Module:
    """Something that a gradient can reach, at both ends."""
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), net, nn.Linear(WIDTH, WIDTH))


@generated
@given(net=nets, batch=st.integers(2, 5), precision=st.sampled_from([None, "bf16", "amp-bf16"]))
def test_rows_add_up_to_totals_at_every_depth(net: nn.Module, batch: int, precision: str | None) -> None:
    """Whatever the net, each byte, parameter and MAC is in one row; parameters are the model's."""
    model = with_a_head(net)
    summary = summarise(model, inputs=(WIDTH,), batch_size=batch, precision=precision)
    totals = summary.totals
    for depth in range(4):
        rows = fold(summary.rows, depth)
        for name in ("params", "trainable_params", "param_bytes", "buffer_bytes", "kept_bytes", "macs"):
            assert sum(getattr(row, name) for row in rows) == getattr(totals, name)
    assert totals.params == sum(p.numel() for p in model.parameters())
    assert totals.trainable_params == sum(p.numel() for p in model.parameters() if p.requires_grad)
    for like in summary.likes.values():
        assert sum(d.kept_bytes for d in like.differences) == totals.kept_bytes
    assert all(formula.check() for row in summary.rows for formula in row.formulas)


def live(prediction: Prediction) -> dict[Category, int]:
    """Requested bytes by category at the moment when the first backward begins."""
    trace = prediction.trace
    end = next(mark.index for mark in trace.marks if mark.name == "backward")
    allocs = {event.id: event for event in trace.events[:end] if isinstance(event, Alloc)}
    for event in trace.events[:end]:
        if isinstance(event, Free):
            allocs.pop(event.id, None)
    found = dict.fromkeys(Category, 0)
    for alloc in allocs.values():
        found[alloc.category] += alloc.requested
    return found


@generated
@given(net=nets, batch=st.integers(2, 5))
def test_totals_are_the_predictions(net: nn.Module, batch: int) -> None:
    """What `predict` holds when backward begins: the totals, the output that the loop holds, the loss."""
    model = with_a_head(net)
    totals = summarise(model, inputs=(WIDTH,), batch_size=batch).totals
    held = live(predict(model, inputs=(WIDTH,), batch_size=batch, optimizer="sgd", loss="sum", gpu="4090"))
    assert held[Category.PARAMETER] == totals.param_bytes
    assert held[Category.BUFFER] == totals.buffer_bytes
    assert held[Category.INPUT] == totals.input_bytes
    output, loss = batch * WIDTH * 4, 4
    kept_elsewhere = totals.input_bytes  # the batch, which the first layer keeps
    kept_elsewhere += sum(
        kept.bytes for row in summarise(model, inputs=(WIDTH,), batch_size=batch).rows for kept in row.kept
        if kept.what == "buffer"
    )  # fmt: skip
    assert held[Category.ACTIVATION] == totals.kept_bytes - kept_elsewhere + output + loss
