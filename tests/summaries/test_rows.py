"""What is a row, and what a row says."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch
from tests.support import nets
from torch import nn

from memlens.summaries.rows import CONTRACT
from memlens.summaries.summarise import summarise
from memlens.summaries.view import fold, ordered

pytestmark = pytest.mark.torch


def test_every_tensor_of_a_nested_output_has_its_shape() -> None:
    """Dictionaries, lists and tuples: three tensors, three shapes; the operators that made them are rows."""
    rows = summarise(nets.Many(), inputs=(8,), batch_size=4).rows
    assert rows[0].output_shapes == ((8,), (4, 8), (4, 8))
    assert [(row.path, row.output_bytes) for row in rows[1:]] == [
        ("/sum", 32), ("/add", 128), ("/mul", 128),
    ]  # fmt: skip


def test_a_dataclass_output_has_its_shapes() -> None:
    """A dataclass is looked into as a dictionary is."""
    import dataclasses

    @dataclasses.dataclass
    class Pair:
        first: torch.Tensor
        second: list[torch.Tensor]

    class Net(nn.Module):
        def forward(self, x: torch.Tensor) -> Pair:
            return Pair(x + 1, [x.sum(1)])

    assert summarise(Net(), inputs=(8,), batch_size=4).rows[0].output_shapes == ((4, 8), (4,))


def test_parameters_outside_layers_and_modules_that_never_run() -> None:
    """The model's own parameter is in its row; a module that never ran is listed with 0 calls."""
    summary = summarise(nets.Outside(), inputs=(8,), batch_size=4)
    rows = {row.path: row for row in summary.rows}
    assert rows[""].params == 8
    assert (rows["idle"].calls, rows["idle"].params, rows["idle"].params_used) == (0, 12, False)
    assert summary.totals.params == 8 + 72 + 12


def test_attention_uses_its_projection_without_calling_it() -> None:
    """MultiheadAttention reads its output projection's weights: not called, yet not unused."""
    summary = summarise(nn.MultiheadAttention(64, 4, batch_first=True), input_data=[torch.ones(2, 5, 64)] * 3)
    row = next(row for row in summary.rows if row.path == "out_proj")
    assert (row.calls, row.params, row.params_used) == (0, 64 * 64 + 64, True)


def test_one_module_under_two_parents() -> None:
    """A module that two others hold is two rows; its parameters are in the first, the second is marked."""
    layer = nn.Linear(8, 8)
    summary = summarise(nn.Sequential(nn.Sequential(layer), nn.Sequential(layer)), inputs=(8,), batch_size=2)
    rows = [row for row in summary.rows if row.type == "Linear"]
    assert [(row.path, row.params, row.shared, row.calls) for row in rows] == [
        ("0.0", 72, False, 1), ("0.0", 0, True, 1),
    ]  # fmt: skip
    assert summary.totals.params == 72


def test_calls_with_other_shapes_are_rows_of_their_own() -> None:
    """One activation for two sizes is two rows, each with its own shape."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act, self.layer = nn.ReLU(), nn.Linear(8, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.act(self.layer(self.act(self.act(x))))

    rows = [row for row in summarise(Net(), inputs=(8,), batch_size=2).rows if row.path == "act"]
    assert [(row.calls, row.output_shapes, row.shared) for row in rows] == [
        (2, ((2, 8),), False), (1, ((2, 4),), True),
    ]  # fmt: skip


def test_a_loop_is_its_body() -> None:
    """Ten times layer, ReLU, dropout: three rows of ten calls, in the order of the body."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.drop = nn.Linear(8, 8), nn.Dropout(0.1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for _ in range(10):
                x = self.drop(self.layer(x).relu())
            return x

    summary = summarise(Net(), inputs=(8,), batch_size=2)
    assert [(row.path, row.calls) for row in summary.rows[1:]] == [
        ("layer", 10), ("/relu", 10), ("drop", 10),
    ]  # fmt: skip
    # each layer's input (dropout's output), each ReLU's output, each dropout's mask of bools
    assert summary.totals.kept_bytes == 10 * (64 + 64 + 16)


def test_a_function_called_again_later_stays_in_its_place() -> None:
    """Convolution, ReLU, convolution, ReLU of one size are four rows, not three."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.two(self.one(x).relu()).relu()

    rows = summarise(Net(), inputs=(8,), batch_size=2).rows[1:]
    assert [row.path for row in rows] == ["one", "/relu", "two", "/relu-2"]


def test_buffers_are_counted() -> None:
    """Batch normalisation has two statistics and a counter: 2 x 64 x 4 + 8 bytes."""
    assert summarise(nn.BatchNorm2d(64), inputs=(64, 8, 8), batch_size=2).totals.buffer_bytes == 520


def test_a_fold_keeps_the_sums() -> None:
    """Whatever depth is shown, the rows add up to the same; a fold's transient is no more."""
    summary = summarise(nets.Nested(), inputs=(3, 8, 8))
    for depth in range(3):
        rows = fold(summary.rows, depth)
        assert max(row.depth for row in rows) == depth
        assert sum(row.kept_bytes for row in rows) == summary.totals.kept_bytes
        assert sum(row.params for row in rows) == summary.totals.params
        assert sum(row.macs for row in rows) == summary.totals.macs
    assert fold(summary.rows, 0)[0].transient_bytes <= sum(row.transient_bytes for row in summary.rows)


def test_sorting_puts_the_largest_first() -> None:
    """By kept bytes, and only rows that keep any."""
    rows = ordered(summarise(nets.Functional(), inputs=(3, 64, 64)).rows, "kept_bytes")
    sizes = [row.kept_bytes for row in rows]
    assert sizes == sorted(sizes, reverse=True)
    assert min(sizes) > 0


def test_the_contract() -> None:
    """Schema memlens.summary/1: these keys, in this order, and nothing that json cannot hold."""
    import json

    summary = summarise(nets.Tied(), inputs="int64:16", like="torchinfo")
    document = json.loads(json.dumps(summary.to_dict()))
    assert document["schema"] == "memlens.summary/1"
    assert tuple(document["rows"][0]) == CONTRACT
    assert tuple(document["totals"]) == (
        "params", "trainable_params", "param_bytes", "buffer_bytes", "input_bytes", "kept_bytes", "macs",
    )  # fmt: skip
    assert tuple(document["like"]) == ("tool", "input_mb", "forward_backward_mb", "params_mb", "total_mb")


def test_csv_has_a_line_a_row() -> None:
    """Shapes are one cell: sizes with x, tensors with spaces."""
    lines = summarise(nets.Many(), inputs=(8,), batch_size=4).to_csv().splitlines()
    assert lines[0] == ",".join(CONTRACT)
    assert lines[1].split(",")[:6] == ["", "Many", "0", "1", "False", "8 4x8 4x8"]
    assert len(lines) == 5


def test_lazy_layers_get_their_shapes_first() -> None:
    """A model whose layers wait for a batch is given one on the host, and says so."""
    summary = summarise(nn.Sequential(nn.LazyLinear(8), nn.ReLU()), inputs=(5,), batch_size=2)
    assert summary.totals.params == 5 * 8 + 8
    assert any("lazy" in assumption.what for assumption in summary.assumptions)


def test_inside_vmap() -> None:
    """What runs inside `vmap` has no storage of its own; what is kept is that of the whole batch."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.vmap(lambda row: self.layer(row).sin())(x)

    assert summarise(Net(), inputs=(8,), batch_size=4).totals.kept_bytes == 2 * 4 * 8 * 4


def test_whatever_mode_the_caller_is_in() -> None:
    """A call under no_grad or inference_mode says the same as one outside."""
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
    outside = summarise(model, inputs=(8,), batch_size=2).totals
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert summarise(model, inputs=(8,), batch_size=2).totals == outside
