"""CUDA autocast: lists of operators, the cache of cast weights, and its ends."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402

import memlens  # noqa: E402
from memlens.units import MIB  # noqa: E402

pytestmark = pytest.mark.torch


class Ran:
    """One weight of 4 MiB, and what is allocated above it."""

    def __init__(self) -> None:
        self.layer = nn.Linear(1024, 1024, bias=False).cuda()
        self.x = torch.empty(8, 1024, device="cuda", dtype=torch.bfloat16)
        self.layer.bfloat16()(self.x)  # cuBLAS has its workspace
        self.layer.float()
        self.start = torch.cuda.memory_allocated()

    def added(self) -> int:
        return torch.cuda.memory_allocated() - self.start


def test_a_weight_is_cast_once_and_kept_until_the_context_ends() -> None:
    """2 MiB from the first use to the end of the block, however often it is used."""
    with memlens.simulate(gpu="A100 40GB"):
        ran = Ran()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            for _ in range(3):
                ran.layer(ran.x)
                assert ran.added() == 2 * MIB
        assert ran.added() == 0


def test_the_graph_keeps_the_cast_beyond_the_context() -> None:
    """Backward to the input needs the cast weight, which lives as long as the graph."""
    with memlens.simulate(gpu="A100 40GB"):
        ran = Ran()
        x = ran.x.requires_grad_()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out = ran.layer(x)
        assert ran.added() == 2 * MIB + out.numel() * 2
        out.sum().backward()
        del out
        workspace = 8 * MIB + 128 * 1024  # of cuBLAS in autograd's thread
        assert ran.added() == 4 * MIB + x.numel() * 2 + workspace  # and the two gradients


def test_the_outermost_context_ends_the_cache() -> None:
    """A nested context, a disabled one and no_grad leave it; the outermost clears it."""
    with memlens.simulate(gpu="A100 40GB"):
        ran = Ran()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            with torch.autocast("cuda", dtype=torch.bfloat16), torch.no_grad():
                ran.layer(ran.x)
            assert ran.added() == 2 * MIB
            with torch.autocast("cuda", enabled=False):
                assert ran.layer(ran.x.float()).dtype is torch.float32
            ran.layer(ran.x)
            assert ran.added() == 2 * MIB
        assert ran.added() == 0


def test_without_the_cache_every_use_casts() -> None:
    """`cache_enabled=False`: nothing stays, 2 MiB at the peak of each use."""
    with memlens.simulate(gpu="A100 40GB"):
        ran = Ran()
        torch.cuda.reset_peak_memory_stats()
        with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
            ran.layer(ran.x)
            assert ran.added() == 0
        assert torch.cuda.max_memory_allocated() - ran.start == 2 * MIB + 8 * 1024 * 2


def test_a_frozen_weight_is_not_cached() -> None:
    """Only leaves that require grad are."""
    with memlens.simulate(gpu="A100 40GB"):
        ran = Ran()
        ran.layer.requires_grad_(False)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            ran.layer(ran.x)
            assert ran.added() == 0


def _half() -> torch.Tensor:
    return torch.empty(8, 8, device="cuda", dtype=torch.float16)


def _full() -> torch.Tensor:
    return torch.empty(8, 8, device="cuda")


@pytest.mark.parametrize(
    ("function", "dtype"),
    [
        (lambda: _full() @ _full(), torch.float16),
        (lambda: F.linear(_full(), _full()), torch.float16),
        (lambda: F.conv1d(_full()[None], _full()[:, :, None]), torch.float16),
        (lambda: torch.einsum("ij,jk", _full(), _full()), torch.float16),
        (lambda: F.prelu(_full(), _full()[0]), torch.float16),
        (lambda: _half().softmax(-1), torch.float32),
        (lambda: _half().sum(), torch.float32),
        (lambda: _half().exp(), torch.float32),
        (lambda: _half().pow(2), torch.float32),
        (lambda: _half().norm(), torch.float32),
        (lambda: F.layer_norm(_half(), (8,)), torch.float32),
        (lambda: F.mse_loss(_half(), _half()), torch.float32),
        (lambda: F.cross_entropy(_half(), torch.zeros(8, dtype=torch.long, device="cuda")), torch.float32),
        (lambda: torch.cat([_half(), _full()]), torch.float32),
        (lambda: torch.stack([_half(), _half()]), torch.float16),
        (lambda: torch.addcmul(_half(), _full(), _half()), torch.float32),
        (lambda: _half() + _full(), torch.float32),
        (lambda: F.gelu(_half()), torch.float16),
        (lambda: F.relu(_full()), torch.float32),
        (lambda: F.dropout(_half()), torch.float16),
        (lambda: _full().double() @ _full().double(), torch.float64),
    ],
)
def test_the_lists(function, dtype: torch.dtype) -> None:
    """Products go down, sums and losses up, lists that promote take the widest, the rest stays."""
    with memlens.simulate(gpu="A100 40GB"), torch.autocast("cuda"):
        assert function().dtype is dtype


def test_a_loss_unsafe_in_halves_is_refused() -> None:
    """`binary_cross_entropy` raises torch's own error; with logits it is float32."""
    with memlens.simulate(gpu="A100 40GB"), torch.autocast("cuda"):
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            F.binary_cross_entropy(_full(), _full())
        assert F.binary_cross_entropy_with_logits(_half(), _half()).dtype is torch.float32


def test_dtypes_and_old_names() -> None:
    """float16 by default, as on any CUDA device; `torch.cuda.amp.autocast` still works."""
    with memlens.simulate(gpu="A100 40GB"):
        assert torch.get_autocast_dtype("cuda") is torch.float16
        with pytest.warns(FutureWarning, match="deprecated"):
            old = torch.cuda.amp.autocast(dtype=torch.bfloat16)
        with old:
            assert torch.is_autocast_enabled("cuda")
            assert (_full() @ _full()).dtype is torch.bfloat16


def test_custom_functions_choose_their_precision() -> None:
    """`custom_fwd(cast_inputs=float32)` casts and switches autocast off, in forward and in backward."""
    seen = []

    class Product(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
        def forward(ctx, x):
            ctx.save_for_backward(x)
            seen.append((x.dtype, torch.is_autocast_enabled("cuda")))
            return x @ x

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx, grad):
            seen.append((grad.dtype, torch.is_autocast_enabled("cuda")))
            return grad @ ctx.saved_tensors[0]

    with memlens.simulate(gpu="A100 40GB"):
        x = _half().requires_grad_()
        with torch.autocast("cuda"):
            out = Product.apply(x)
        out.sum().backward()
        assert x.grad.dtype is torch.float16
    assert seen == [(torch.float32, False)] * 2


def test_inference_mode_keeps_no_cast_weights() -> None:
    """Under no_grad a cast weight of 2 MiB is kept until the context ends; in inference mode it is not."""
    kept = {}
    for name, mode in (("no_grad", torch.no_grad), ("inference_mode", torch.inference_mode)):
        with memlens.simulate("T4"):
            layer = torch.nn.Linear(1024, 1024, bias=False).cuda()
            batch = torch.ones(2, 1024, device="cuda")
            with mode(), torch.autocast("cuda", torch.bfloat16):
                layer(batch)
                before = torch.cuda.memory_allocated()
                layer(batch)
                others = 4 * MIB + 8192 + 8519680  # the weight, the batch, cuBLAS' workspace
                kept[name] = before - others, torch.cuda.memory_allocated() - before
    assert kept == {"no_grad": (2 * MIB, 0), "inference_mode": (0, 0)}
