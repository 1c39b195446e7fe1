"""`memlens.predict` end to end: what must be true of every prediction, and of the model afterwards."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

import memlens
from memlens.errors import MemlensError, TargetError, UsageError
from memlens.model import Category
from memlens.scenarios.losses import Objective
from memlens.units import MIB

pytestmark = pytest.mark.torch
EXAMPLES = Path(__file__).parents[2] / "examples"
VGG16 = f"{EXAMPLES}/vgg16.py:vgg16"
VGG16_PARAMETER_BYTES = 138_357_544 * 4


def mlp(wide: int = 1024, depth: int = 2) -> nn.Module:
    """`depth` square linear layers of 4 MiB each at the default width."""
    return nn.Sequential(*(nn.Linear(wide, wide, bias=False) for _ in range(depth)))


def mib(prediction: memlens.Prediction) -> dict[str, float]:
    """The breakdown in MiB, without what is not there."""
    return {str(key): size / MIB for key, size in prediction.breakdown.items() if size}


def test_vgg16_holds_its_parameters() -> None:
    """138,357,544 parameters of 4 bytes, each tensor rounded up to 512; two states a parameter for AdamW."""
    found = memlens.predict(VGG16, inputs="3x224x224", batch_size=2, gpu="4090")
    blocks = found.breakdown[Category.PARAMETER]
    assert VGG16_PARAMETER_BYTES <= blocks < VGG16_PARAMETER_BYTES + 2 * MIB
    assert found.breakdown[Category.OPTIMIZER_STATE] >= 2 * VGG16_PARAMETER_BYTES
    assert found.fits
    assert found.device.name == "NVIDIA GeForce RTX 4090"


@pytest.mark.parametrize("mode", ["train", "inference"])
def test_the_breakdown_sums_to_the_process(mode: str) -> None:
    """Every byte of the process is in one category, and the trace proves its own sums."""
    found = memlens.predict(mlp(), batch_size=256, gpu="T4", mode=mode)
    found.trace.check()
    assert sum(found.breakdown.values()) == found.peak.process_bytes
    assert found.headroom_bytes == found.device.memory_bytes - found.peak.process_bytes
    assert found.peak.low_process_bytes <= found.peak.process_bytes <= found.peak.high_process_bytes


def test_the_first_step_makes_the_state_and_the_second_has_it() -> None:
    """8 MiB of weights, 1 of input and target; from step 2 on 16 MiB of AdamW's state beside them."""
    first, second = memlens.predict(mlp(), inputs="1024", batch_size=16, gpu="T4").steps
    assert first.start_allocated_bytes == 8 * MIB
    assert second.start_allocated_bytes - first.start_allocated_bytes >= 16 * MIB
    assert second.peak_allocated_bytes > first.forward_peak_bytes
    assert second.end_allocated_bytes == first.end_allocated_bytes


@pytest.mark.parametrize(
    ("optimizer", "arguments", "states"),
    [
        ("sgd", {}, 0),
        ("sgd", {"momentum": 0.9}, 1),
        ("adam", {}, 2),
        ("adam", {"amsgrad": True}, 3),
        ("none", {}, 0),
    ],
)
def test_an_optimizer_holds_so_many_copies_of_the_weights(
    optimizer: str, arguments: dict, states: int
) -> None:
    """SGD none, momentum one, Adam two, AMSGrad three; the step counters are small."""
    found = memlens.predict(mlp(), inputs="1024", gpu="4090", optimizer=optimizer, optimizer_args=arguments)
    held = found.breakdown[Category.OPTIMIZER_STATE]
    assert states * 8 * MIB <= held < states * 8 * MIB + 64 * 1024


def test_precision_sets_the_weights() -> None:
    """bf16 halves weights, gradients and states; amp keeps weights in fp32."""
    parameters = {
        precision: memlens.predict(mlp(), inputs="1024", gpu="4090", precision=precision)
        .breakdown[Category.PARAMETER] / MIB
        for precision in (None, "fp32", "bf16", "fp16", "amp-bf16", "amp-fp16")
    }  # fmt: skip
    assert parameters == {None: 8, "fp32": 8, "bf16": 4, "fp16": 4, "amp-bf16": 8, "amp-fp16": 8}


def test_inference_keeps_nothing_for_backward() -> None:
    """No gradients, no state, no activations; a peak of the weights and two layers' outputs."""
    found = memlens.predict(mlp(depth=8), inputs="1024", batch_size=1024, gpu="4090", mode="inference")
    assert not {"gradients", "optimizer_state", "activations"} & set(mib(found))
    assert found.steps[0].backward_peak_bytes is None
    assert found.scenario["optimizer"] == "none"


def test_accumulation_adds_no_activations() -> None:
    """Four small batches hold what one of them holds; the gradients stay between them."""
    one = memlens.predict(mlp(), inputs="1024", batch_size=512, gpu="4090", optimizer="sgd")
    four = memlens.predict(mlp(), inputs="1024", batch_size=512, gpu="4090", optimizer="sgd", accumulate=4)
    assert four.breakdown[Category.ACTIVATION] <= one.breakdown[Category.ACTIVATION] + 8 * MIB
    assert four.operators > 3 * one.operators


class Block(nn.Module):
    """A block that keeps four outputs of its layers."""

    def __init__(self, wide: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(wide, wide), nn.GELU()) for _ in range(2)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.layers(x)


def blocks() -> nn.Module:
    return nn.Sequential(*(Block(256) for _ in range(6)))


def test_checkpointing_keeps_less() -> None:
    """Six repeated blocks keep their inputs only, and the result says which were wrapped."""
    plain = memlens.predict(blocks, inputs="256", batch_size=4096, gpu="4090", loss="sum")
    less = memlens.predict(
        blocks, inputs="256", batch_size=4096, gpu="4090", loss="sum", grad_checkpointing=True
    )
    assert less.peak.allocated_bytes < 0.6 * plain.peak.allocated_bytes
    assert any(a.what == "checkpointing of the 6 Block in the model" for a in less.assumptions)


def test_without_a_card_the_catalogue_answers() -> None:
    """No verdict, every card with its own need, smallest first; a large need fits fewer."""
    found = memlens.predict(mlp(), inputs="1024")
    assert found.fits is None
    assert len(found.cards) >= 40
    assert [c.memory_bytes for c in found.cards] == sorted(c.memory_bytes for c in found.cards)
    large = memlens.predict(mlp(), inputs="1024", batch_size=2_000_000)
    assert sum(c.fits for c in large.cards) < sum(c.fits for c in found.cards)
    assert json.loads(json.dumps(large.to_dict()))["cards"][0]["fits"] is False


def test_memory_alone_is_a_card() -> None:
    """`--memory 1GiB` needs no name, and what does not fit says by how much."""
    found = memlens.predict(mlp(), inputs="1024", batch_size=500_000, memory="1GiB")
    assert found.fits is False
    assert found.headroom_bytes < 0
    assert found.headline().startswith("Sequential: does not fit a GPU with 1.00 GiB")


def test_both_ways_to_name_inputs_agree() -> None:
    """A shape, its text and a tensor are the same input."""
    ways = ["1024", (1024,), torch.zeros(16, 1024), [(1024,)]]
    peaks = {memlens.predict(mlp(), inputs=way, batch_size=16, gpu="T4").peak for way in ways}
    assert len(peaks) == 1


def test_gradients_are_on_whatever_the_caller_set() -> None:
    """Called under no_grad or inference_mode it is still training that is predicted, and the mode stays."""
    peaks = {memlens.predict(mlp(), inputs="1024", gpu="T4").peak.allocated_bytes}
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            peaks.add(memlens.predict(mlp(), inputs="1024", gpu="T4").peak.allocated_bytes)
            assert not torch.is_grad_enabled()
            assert torch.is_inference_mode_enabled() == (mode is torch.inference_mode)
    assert len(peaks) == 1


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyConv2d(8, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lazy, "lazy layers get their shapes from a batch on the host"),
        (lambda: torch.compile(nn.Conv2d(3, 8, 3)), "torch.compile is taken as eager code"),
        (lambda: nn.DataParallel(nn.Conv2d(3, 8, 3)), "the usual loop"),
        (lambda: nn.Conv2d(3, 8, 3).cuda(), "the usual loop"),
    ],
)
def test_models_as_people_make_them(make: Callable[[], nn.Module], says: str) -> None:
    """Lazy, compiled, in parallel over one card, already on the card."""
    found = memlens.predict(make, inputs="3x32x32", batch_size=4, gpu="4090")
    assert found.breakdown[Category.PARAMETER] > 0
    assert any(says in a.what for a in found.assumptions)


def test_what_nobody_foresaw_is_one_line_too() -> None:
    """An error outside forward and backward keeps its cause for Python and is one line for people."""

    class Odd(nn.Linear):
        def train(self, mode: bool = True) -> nn.Module:
            raise RuntimeError("no modes here")

    with pytest.raises(TargetError, match="could not be simulated: RuntimeError: no modes here") as error:
        memlens.predict(lambda: Odd(2, 2), inputs="2", gpu="4090")
    assert isinstance(error.value.__cause__, RuntimeError)


class Distracted(nn.Module):
    """Between the embedding and the layer above it, a module that has no gradient makes tensors."""

    class Table(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.arange(x.shape[1], device=x.device).float().sin() * 0

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.table, self.head = nn.Embedding(50_000, 64), self.Table(), nn.Linear(64, 2)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids)
        return self.head(x * (1 + self.table(x)[:, None]))


def test_a_gradient_belongs_to_its_own_module() -> None:
    """Weights, gradient and two states of 12.2 MiB are the embedding's, none of them the table's."""
    found = memlens.predict(Distracted, seq_len=16, gpu="4090", loss="sum")
    held = {holder.module: holder.bytes for holder in found.top_modules}
    assert held["embed"] >= 4 * 50_000 * 64 * 4
    assert held.get("table", 0) < 1 * MIB


# what is left of a real model -------------------------------------------------------------------------


def snapshot(model: nn.Module) -> dict[str, Any]:
    """Everything of a model and of the process that predicting might touch."""
    return {
        "values": {k: v.clone() for k, v in model.state_dict().items()},
        "ids": [id(p) for p in model.parameters()],
        "data": [p.data_ptr() for p in model.parameters()],
        "grads": [None if p.grad is None else p.grad.clone() for p in model.parameters()],
        "requires_grad": [p.requires_grad for p in model.parameters()],
        "devices": [p.device for p in model.parameters()],
        "training": [m.training for m in model.modules()],
        "hooks": [list(m._forward_hooks.values()) for m in model.modules()],
        "forward": ["forward" in vars(m) for m in model.modules()],
        "torch": torch.get_rng_state(),
        "python": random.getstate(),
        "grad": torch.is_grad_enabled(),
        "autocast": torch.is_autocast_enabled("cuda"),
    }


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b)


class Fragile(nn.Module):
    """Has what people's models have, and fails in forward when told to."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(64)
        self.drop = nn.Dropout()
        self.up = nn.Linear(64, 512)
        self.down = nn.Linear(512, 64)
        self.fails = False
        self.up.weight.requires_grad_(False)
        self.down.weight.grad = torch.ones(64, 512)
        self.drop.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.down(self.drop(self.up(self.norm(x))))
        if self.fails:
            raise ValueError("told to fail")
        return x


def keep(module: nn.Module, args: Any, output: Any) -> None:
    """A hook of the user's."""


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize(
    "options", [{}, {"mode": "inference"}, {"precision": "amp-fp16"}, {"precision": "bf16"}]
)
def test_a_real_model_is_untouched(fails: bool, options: dict) -> None:
    """Weights, buffers, grads, flags, hooks and random states are bit-identical, also after a failure."""
    model = Fragile()
    model.fails = fails
    model.up.register_forward_hook(keep)
    before = snapshot(model)
    run: Callable[[], Any] = lambda: memlens.predict(model, inputs="64", batch_size=8, gpu="4090", **options)  # noqa: E731
    if fails:
        with pytest.raises(TargetError, match="Fragile failed on an input of 8x64: ValueError: told to fail"):
            run()
    else:
        run()
    after = snapshot(model)
    assert [key for key in before if not same(before[key], after[key])] == []


def test_a_model_without_weights_costs_no_memory() -> None:
    """A model on the meta device, of a terabyte, is predicted like any other."""
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Linear(100_000, 100_000, bias=False) for _ in range(25)))
    found = memlens.predict(model, batch_size=1, gpu="H200", optimizer="sgd")
    assert found.fits is False
    assert found.breakdown[Category.PARAMETER] == 25 * 4 * 100_000**2


# bad input --------------------------------------------------------------------------------------------


def test_a_refused_shape_names_the_layer_and_both_shapes() -> None:
    """The path, the type, the weight's shape and the input's."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(512, 10))
    with pytest.raises(TargetError) as error:
        memlens.predict(model, inputs="3x32x32", batch_size=4, gpu="T4")
    assert "1 (Linear), whose weight is 10x512, failed on an input of 4x3072" in error.value.message


class Masked(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        return y[y > 0]


def test_a_shape_that_depends_on_data_is_a_stated_bound() -> None:
    """The operator and its line are named, and what is kept is taken to be everything."""
    found = memlens.predict(lambda: Masked(8, 8), inputs="8", batch_size=4, gpu="4090", loss="sum")
    (said,) = (a for a in found.assumptions if "is taken to keep all 32 elements" in a.what)
    assert said.what.startswith("index at ")
    assert "test_loop.py:" in said.what


def test_a_missing_input_is_named() -> None:
    """A model of two inputs is told which one lacks."""
    with pytest.raises(UsageError, match="missing a required argument: 'input2'"):
        memlens.predict(nn.Bilinear(4, 4, 2), inputs="4", gpu="T4")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"gpu": "GTX 9999 Ultra"}, "knows no GPU called"),
        ({"memory": "-1"}, "is from 0 to 16 EiB"),
        ({"optimizer": "adan"}, "unknown optimizer 'adan'"),
        ({"batch_size": 0}, "batch size must be a whole number of at least 1, got 0"),
        ({"loss": "cross_entrpy"}, "unknown loss 'cross_entrpy'"),
        ({"loss": "output.los"}, "has no 'los'"),
        ({"loss": lambda out: out}, "has shape 1x1024; backward needs one number"),
        ({"loss": lambda out: 3}, "is a int, not a tensor"),
        ({"grad_checkpointing": True}, "Sequential has no repeated blocks to checkpoint"),
        ({"seq_len": 5}, "--seq-len"),
    ],
)
def test_bad_input_is_one_clear_error(options: dict, says: str) -> None:
    """Each says what was given and what is wrong with it."""
    with pytest.raises(MemlensError, match=says):
        memlens.predict(mlp(), **{"inputs": "1024", "gpu": "T4", **options})


def test_a_frozen_model_cannot_train() -> None:
    """Nothing requires a gradient: said, not crashed."""
    model = mlp().requires_grad_(False)
    with pytest.raises(UsageError, match="no parameter that requires a gradient"):
        memlens.predict(model, inputs="1024", gpu="T4")


# losses -----------------------------------------------------------------------------------------------


def test_the_loss_is_inferred_from_the_outputs() -> None:
    """Logits of classes and of tokens get cross-entropy, the model's own loss wins, the rest is averaged."""
    logits = torch.zeros(4, 10, requires_grad=True)
    tokens = torch.zeros(2, 7, 10, requires_grad=True)
    images = torch.zeros(2, 3, 8, 8, requires_grad=True)
    cases = [
        (logits, None, "cross_entropy", 1),
        (tokens, torch.Size((2, 7)), "cross_entropy", 1),
        (images, None, "mean", 1),
        ({"loss": logits.sum(), "logits": logits}, None, "output.loss", 0),
    ]
    for outputs, shape, name, assumed in cases:
        objective = Objective()
        assert objective(outputs, shape).ndim == 0
        assert (objective.name, len(objective.assumptions)) == (name, assumed)


def test_a_loss_of_ones_own_gets_a_target_where_it_takes_two() -> None:
    """`nn.CrossEntropyLoss()` gets class numbers, a function of one argument only the outputs."""
    logits = torch.zeros(4, 10, requires_grad=True)
    objective = Objective(nn.CrossEntropyLoss())
    assert objective(logits).ndim == 0
    assert objective.target is not None
    assert objective.target.dtype == torch.int64
    assert Objective(lambda out: out.sum())(logits).ndim == 0
    for name in ("mse", "bce", "sum", "mean"):
        assert Objective(name)(logits).ndim == 0


def test_a_nearly_full_card_gives_cached_blocks_back() -> None:
    """VGG16 would like two gigabytes more than it holds; on a card without them it may still fit."""
    free = memlens.predict(VGG16, inputs="3x224x224", batch_size=32, memory="24GiB")
    needs, holds = free.peak.process_bytes, free.peak.allocated_bytes + free.breakdown[Category.CONTEXT]
    tight = memlens.predict(VGG16, inputs="3x224x224", batch_size=32, memory=needs - 256 * MIB)
    assert tight.fits
    assert tight.may_not_fit
    assert tight.peak.process_bytes <= tight.device.memory_bytes
    assert tight.peak.allocated_bytes == free.peak.allocated_bytes
    assert any("gives cached memory back" in a.what for a in tight.assumptions)
    assert sum(tight.breakdown.values()) == tight.peak.process_bytes
    assert memlens.predict(VGG16, inputs="3x224x224", batch_size=32, memory=holds - MIB).fits is False
