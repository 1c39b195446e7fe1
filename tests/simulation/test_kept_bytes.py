"""What autograd keeps for backward: small modules whose bytes are known.

Kept is what is allocated at the end of forward beyond what was there before, without cuBLAS's workspace.
"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import memlens  # noqa: E402
from memlens.model import Category  # noqa: E402
from memlens.units import KIB, MIB  # noqa: E402

pytestmark = pytest.mark.torch


def _kept(make, *shape: int, dtype=torch.float32, autocast: bool = False, eval: bool = False) -> int:
    """Bytes of activations that live at the end of forward, beside the input and a result nobody keeps.

    The model's input is a tensor that a layer before it made, as in a network; it counts where it is saved.
    """
    with memlens.simulate(gpu="A100 40GB") as sim:
        model = make().cuda().to(dtype)
        model.train(not eval)
        x = torch.empty(*shape, device="cuda", dtype=dtype, requires_grad=True)
        sim.blas_workspace("before")
        parameters = torch.cuda.memory_allocated() - x.numel() * x.element_size()
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=autocast):
            y = model(x)
        loss = _Sink.apply(y)
        del x, y
        kept = torch.cuda.memory_allocated() - parameters - 512
        loss.backward()
        return kept


class _Sink(torch.autograd.Function):
    """A loss that keeps nothing."""

    @staticmethod
    def forward(ctx, x):
        ctx.like = (x.shape, x.dtype)
        return torch.empty((), device="cuda")

    @staticmethod
    def backward(ctx, grad):
        return torch.empty(ctx.like[0], dtype=ctx.like[1], device="cuda")


def linear(*after) -> nn.Module:
    return nn.Sequential(nn.Linear(1024, 1024), *after)


@pytest.mark.parametrize(
    ("make", "options", "mib"),
    [
        (lambda: linear(nn.GELU()), {}, 2.0),
        (lambda: linear(nn.ReLU()), {}, 2.0),
        (lambda: linear(nn.ReLU(inplace=True)), {}, 2.0),
        (lambda: linear(nn.ReLU()), {"dtype": torch.bfloat16}, 1.0),
        (lambda: nn.LayerNorm(1024), {}, 1.0 + 2 / 1024),
    ],
)
def test_one_layer_of_256_by_1024(make, options: dict, mib: float) -> None:
    """A linear layer keeps its input, an activation what its formula needs; a norm mean and rstd a row."""
    assert _kept(make, 256, 1024, **options) == mib * MIB


def test_dropout_keeps_a_mask_in_training_only() -> None:
    """Linear and dropout: the input (1 MiB) and a byte an element (0.25 MiB) on CUDA; in eval the input."""
    assert _kept(lambda: linear(nn.Dropout(0.5)), 256, 1024) == MIB + 256 * KIB
    assert _kept(lambda: linear(nn.Dropout(0.5)), 256, 1024, eval=True) == MIB


def test_batch_norm_keeps_input_and_statistics() -> None:
    """8 x 64 x 32 x 32: 2 MiB of input, and two vectors of 64 (512 bytes each at least)."""
    assert _kept(lambda: nn.BatchNorm2d(64), 8, 64, 32, 32) == 2 * MIB + 2 * 512


def test_autocast_keeps_casts() -> None:
    """bf16 linear and relu: the cast input (0.5) and the result (0.5), and the cast weight (2 MiB)."""
    leaf = MIB  # the float32 input is a leaf that gets a gradient, so the graph holds it
    assert _kept(lambda: linear(nn.ReLU()), 256, 1024, autocast=True) == leaf + 1 * MIB + 2 * MIB


def test_a_shared_layer_keeps_every_input() -> None:
    """One Linear(1024, 1024) 100 times on (256, 1024): 100 MiB."""

    class Again(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(1024, 1024)

        def forward(self, x):
            for _ in range(100):
                x = self.layer(x)
            return x

    assert _kept(Again, 256, 1024) == 100 * MIB


def test_a_layer_a_hundred_times_over_ten_thousand_rows() -> None:
    """Parameters 4.004 MiB, the input 40, and 4,000 kept: 4,044.004 MiB, as a card showed."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        layer = nn.Linear(1024, 1024).cuda()
        x = y = torch.empty(10240, 1024, device="cuda")
        for _ in range(100):
            y = layer(y)
        workspace = sum(e.bytes for e in sim.events if getattr(e, "category", None) is Category.WORKSPACE)
        assert (torch.cuda.memory_allocated() - workspace) / MIB == pytest.approx(4044.0039, abs=1e-4)
        assert x.is_cuda


def test_a_language_models_head() -> None:
    """512 tokens of 32,000 words, width 512, with cross-entropy: input, log-probabilities, a total weight."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        head = nn.Linear(512, 32000, bias=False).cuda()
        x = torch.empty(512, 512, device="cuda", requires_grad=True)
        target = torch.zeros(512, dtype=torch.long, device="cuda")
        sim.blas_workspace("before")
        start = torch.cuda.memory_allocated() - x.numel() * 4 - 4096
        loss = F.cross_entropy(head(x), target)
        kept = torch.cuda.memory_allocated() - start - 512
    assert kept / MIB == pytest.approx(63.5, abs=0.01)
    assert loss.shape == ()


def test_frozen_and_without_grad_nothing_is_kept() -> None:
    """All parameters frozen, or no_grad: only the result lives."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        model = linear(nn.GELU(), nn.Linear(1024, 1024)).cuda().requires_grad_(False)
        x = torch.empty(256, 1024, device="cuda")
        sim.blas_workspace("before")
        start = torch.cuda.memory_allocated()
        model(x)
        assert torch.cuda.memory_allocated() == start
        with torch.no_grad():
            model.requires_grad_(True)(x)
        assert torch.cuda.memory_allocated() == start


def test_convolutions() -> None:
    """Conv-ReLU-Conv, 3-8-8 channels on 4 x 3 x 64 x 64: the input and the activation, 0.19 + 0.5 MiB."""

    def make():
        return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1))

    assert _kept(make, 4, 3, 64, 64) == 4 * 3 * 64 * 64 * 4 + 4 * 8 * 64 * 64 * 4


def test_tied_weights_are_one_storage() -> None:
    """Embedding(1000, 64) and Linear share 64,000 numbers: 250 KiB, before and after moving."""
    with memlens.simulate(gpu="A100 40GB"):
        embedding, head = nn.Embedding(1000, 64), nn.Linear(64, 1000, bias=False)
        head.weight = embedding.weight
        model = nn.ModuleList([embedding, head]).cuda()
        assert torch.cuda.memory_allocated() == 250 * KIB
        assert model[0].weight is model[1].weight


def test_seven_billion_parameters_fit_no_ram() -> None:
    """A model built on the device, 7 x 10^9 parameters in bfloat16, costs no memory here."""
    with memlens.simulate(gpu="A100 80GB"), torch.device("cuda"):
        layers = [nn.Linear(16384, 16384, bias=False, dtype=torch.bfloat16) for _ in range(26)]
        assert torch.cuda.memory_allocated() == 26 * 512 * MIB
        assert len(layers) == 26
