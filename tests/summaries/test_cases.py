"""What users of summary tools ran into, each with the right answer (as CUDA's kernels keep it)."""

from __future__ import annotations

import copy

import pytest

pytest.importorskip("torch")

import torch
from tests.support import nets
from torch import nn

from memlens.errors import MemlensError
from memlens.summaries.summarise import summarise
from memlens.units import KIB, MIB

pytestmark = pytest.mark.torch


def kept_mib(model: nn.Module, shape: object, batch_size: int = 1, **options: object) -> float:
    return summarise(model, inputs=shape, batch_size=batch_size, **options).totals.kept_bytes / MIB


def linear() -> nn.Linear:
    return nn.Linear(1024, 1024)


KEPT = {
    # net, shape of a sample, batch, MiB
    "Linear, GELU": (lambda: nn.Sequential(linear(), nn.GELU()), (1024,), 256, 2.0),
    "Linear, ReLU": (lambda: nn.Sequential(linear(), nn.ReLU()), (1024,), 256, 2.0),
    "Linear, ReLU in place": (lambda: nn.Sequential(linear(), nn.ReLU(inplace=True)), (1024,), 256, 2.0),
    # CPU's dropout keeps a mask of floats, 2.00 MiB in all; CUDA's fused one a mask of bools
    "Linear, Dropout": (lambda: nn.Sequential(linear(), nn.Dropout()), (1024,), 256, 1.25),
    # input, mean and rstd of every row
    "LayerNorm": (lambda: nn.LayerNorm(1024), (1024,), 256, 1 + 2 * 256 * 4 / MIB),
    # input, mean and rstd of the batch, running mean and variance
    "BatchNorm2d": (lambda: nn.BatchNorm2d(64), (64, 32, 32), 8, 2 + 4 * 64 * 4 / MIB),
    "Conv, ReLU, Conv": (
        lambda: nn.Sequential(nets.wide_conv(3), nn.ReLU(), nets.wide_conv(64)), (3, 64, 64), 4, 4.1875,
    ),
    "one layer 100 times": (lambda: nets.Again(100), (1024,), 256, 100.0),
}  # fmt: skip


@pytest.mark.parametrize("name", KEPT)
def test_kept_for_backward(name: str) -> None:
    """MiB that autograd keeps after the forward, parameters excluded."""
    make, shape, batch, expected = KEPT[name]
    assert kept_mib(make(), shape, batch) == expected


def test_dropout_in_eval_mode_keeps_no_mask() -> None:
    """Without dropout only the layer's input is kept."""
    assert kept_mib(nn.Sequential(linear(), nn.Dropout()), (1024,), 256, mode="eval") == 1.0


def test_a_language_models_head_and_its_loss() -> None:
    """512 tokens x 32,000 words: the head's input and log-probabilities, 63.5 MiB together."""

    class Head(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(512, 32_000)

        def forward(self, x: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
            return nn.functional.cross_entropy(self.head(x), labels)

    summary = summarise(Head(), inputs={"x": (512,), "labels": "int64:"}, batch_size=512)
    rows = {row.path: row for row in summary.rows}
    assert rows["head"].kept_bytes == MIB
    # log-probabilities, labels, and the number of labels that count
    assert rows["/cross_entropy"].kept_bytes == 512 * 32_000 * 4 + 512 * 8 + 4


def test_nothing_is_kept_when_all_is_frozen_or_in_inference() -> None:
    """No gradient is asked for, so backward needs nothing."""
    frozen = nn.Sequential(linear(), nn.ReLU()).requires_grad_(False)
    assert kept_mib(frozen, (1024,), 256) == 0
    assert kept_mib(nn.Sequential(linear(), nn.ReLU()), (1024,), 256, mode="inference") == 0


def test_in_place_activations_lower_only_what_is_transient() -> None:
    """ReLU keeps its output either way; not in place, the layer's own output is short-lived beside it."""
    plain = summarise(nn.Sequential(linear(), nn.ReLU()), inputs=(1024,), batch_size=256)
    in_place = summarise(nn.Sequential(linear(), nn.ReLU(inplace=True)), inputs=(1024,), batch_size=256)
    assert plain.totals.kept_bytes == in_place.totals.kept_bytes
    assert [row.transient_bytes for row in plain.rows] == [0, MIB, 0]
    assert [row.transient_bytes for row in in_place.rows] == [0, 0, 0]


def test_a_layer_used_again_and_again() -> None:
    """One row of 100 calls: 4,000 MiB kept, the batch among them, beside 4.004 MiB of parameters."""
    summary = summarise(nets.Again(100), inputs=(1024,), batch_size=10_240)
    row = next(row for row in summary.rows if row.path == "layer")
    assert (row.calls, row.params, row.kept_bytes) == (100, 1_049_600, 4_000 * MIB)
    last = 40 * MIB  # the output: the caller holds it, backward does not need it
    batch = summary.totals.input_bytes
    held = summary.totals.param_bytes + summary.totals.kept_bytes + last
    assert held / MIB == pytest.approx(4_044.004, abs=0.001)
    assert batch == 40 * MIB


def test_tied_weights_count_once_and_are_marked() -> None:
    """64,000 parameters in 250 KiB; the head says that it shares them."""
    summary = summarise(nets.Tied(), inputs="int64:16")
    assert (summary.totals.params, summary.totals.param_bytes) == (64_000, 250 * KIB)
    assert {row.path: row.shared for row in summary.rows} == {"": False, "embed": False, "head": True}


def test_half_precision_halves_what_is_kept() -> None:
    """bf16 weights: 1.00 MiB kept and 2.0 MiB of parameters; fp32: 2.00 and 4.0."""
    net = nn.Sequential(linear(), nn.ReLU())
    half = summarise(net, inputs=(1024,), batch_size=256, precision="bf16").totals
    full = summarise(net, inputs=(1024,), batch_size=256).totals
    assert (half.kept_bytes, half.param_bytes) == (MIB, 2 * (1024 * 1024 + 1024))
    assert (full.kept_bytes, full.param_bytes) == (2 * MIB, 4 * (1024 * 1024 + 1024))


def test_autocast_keeps_halves_and_copies_of_the_weights() -> None:
    """1.00 MiB kept, parameters in fp32, and the copies of the weights in a line of their own."""
    net = nn.Sequential(linear(), nn.ReLU())
    summary = summarise(net, inputs=(1024,), batch_size=256, precision="amp-bf16")
    assert summary.totals.kept_bytes == MIB
    assert summary.totals.param_bytes == 4 * (1024 * 1024 + 1024)
    assert summary.weight_copies_bytes == 2 * (1024 * 1024 + 1024)


@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_as_it_was(fails: bool) -> None:
    """Values, mode, gradients, hooks, random state: the same after a summary, also after one that failed."""
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Dropout(0.5))
    net[1].eval()
    net[0].bias.requires_grad_(False)
    state, flags = copy.deepcopy(net.state_dict()), [module.training for module in net.modules()]
    random = torch.get_rng_state()
    shape = (3, 2, 2) if fails else (3, 16, 16)
    if fails:
        with pytest.raises(MemlensError, match="Conv2d"):
            summarise(net, inputs=shape, batch_size=2)
    else:
        summarise(net, inputs=shape, batch_size=2)
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
    assert [module.training for module in net.modules()] == flags
    assert torch.equal(random, torch.get_rng_state())
    assert not net[0].bias.requires_grad
    assert net[0].weight.device.type == "cpu"
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks")
    assert not any(getattr(module, name) for module in net.modules() for name in hooks)
    assert torch.nn.modules.module._global_forward_hooks == {}


class _Holds(torch.autograd.Function):
    """Keeps its input as an attribute, which no hook on saved tensors sees."""

    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        ctx.x = x
        return x * 2

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_blocks_keep_their_inputs(reentrant: bool) -> None:
    """Three blocks of layer and ReLU, recomputed in backward: each keeps its input of 1 MiB and no more."""
    from torch.utils.checkpoint import checkpoint

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = linear()
            self.blocks = nn.ModuleList(nn.Sequential(linear(), nn.ReLU()) for _ in range(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.first(x)
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=reentrant)
            return x

    assert kept_mib(Net(), (1024,), 256) == 4.0  # and the first layer its own


def test_what_a_custom_function_holds_is_kept() -> None:
    """An attribute of its context lives as long as the graph: 1 MiB, the output of the layer before."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = linear()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return _Holds.apply(self.layer(x))

    summary = summarise(Net(), inputs=(1024,), batch_size=256)
    assert summary.totals.kept_bytes == 2 * MIB
    assert {row.path: row.kept_bytes for row in summary.rows}["layer"] == 2 * MIB


def test_what_the_model_remembers_is_not_kept_for_backward() -> None:
    """A tensor that a module stores in itself outlives the graph: it is no activation."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = linear()

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.last = self.layer(x).detach() + 1
            return self.layer(x)

    assert kept_mib(Net(), (1024,), 256) == 1.0
