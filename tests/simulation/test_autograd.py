"""Code that autograd calls sees the device: hooks, custom functions, recomputation, offloading."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.checkpoint import (  # noqa: E402
    checkpoint,
    checkpoint_sequential,
    create_selective_checkpoint_contexts,
)

import memlens  # noqa: E402
from memlens.model import Alloc  # noqa: E402
from memlens.units import MIB  # noqa: E402

pytestmark = pytest.mark.torch


class Square(torch.autograd.Function):
    """Keeps its input; notes what forward and backward see."""

    seen: list = []  # noqa: RUF012

    @staticmethod
    def forward(ctx, x):
        Square.seen.append(("forward", x.is_cuda, torch.zeros(3, device="cuda").is_cuda))
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        Square.seen.append(("backward", x.is_cuda, torch.zeros(3, device="cuda").is_cuda))
        return grad * 2 * x


@pytest.mark.parametrize("how", ["backward", "grad"])
def test_a_custom_function_runs_once_and_sees_the_device(how: str) -> None:
    """Forward and backward run once each, and `device="cuda"` works inside both."""
    Square.seen = []
    with memlens.simulate(gpu="A100 40GB"):
        x = torch.empty(1024, 1024, device="cuda", requires_grad=True)
        start = torch.cuda.memory_allocated()
        y = Square.apply(x)
        assert torch.cuda.memory_allocated() - start == 4 * MIB  # the output; the input is there anyway
        if how == "grad":
            (gradient,) = torch.autograd.grad(y.sum(), x)
        else:
            y.sum().backward()
            gradient = x.grad
        assert gradient.is_cuda
    assert Square.seen == [("forward", True, True), ("backward", True, True)]


def test_hooks_see_gradients_on_the_device() -> None:
    """On tensors, on modules, and after accumulation."""
    seen = []
    with memlens.simulate(gpu="A100 40GB"):
        layer = nn.Linear(8, 8).cuda()
        layer.register_full_backward_hook(lambda module, given, got: seen.append(got[0].is_cuda))
        layer.weight.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.device.type))
        x = torch.empty(4, 8, device="cuda", requires_grad=True)
        x.register_hook(lambda grad: seen.append(grad.is_cuda))
        layer(x).sum().backward()
    assert sorted(map(str, seen)) == ["True", "True", "cuda"]


def test_a_graph_can_be_kept_and_differentiated_again() -> None:
    """`retain_graph` runs twice; `create_graph` gives gradients of gradients."""
    with memlens.simulate(gpu="A100 40GB"):
        x = torch.empty(64, 64, device="cuda", requires_grad=True)
        y = x.exp().sum()
        y.backward(retain_graph=True)
        y.backward()
        (first,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        first.pow(2).sum().backward()
        assert x.grad.is_cuda
        assert first.requires_grad


def _blocks(count: int = 8) -> nn.Sequential:
    """Blocks that keep more than their input: Linear, GELU, Dropout."""
    return nn.Sequential(
        *(nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.Dropout(0.1)) for _ in range(count))
    ).cuda()


def _kept(run, reentrant: bool) -> tuple[int, int]:
    """MiB kept after forward, and the largest operator count that backward repeats."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        model = _blocks()
        x = torch.empty(1024, 512, device="cuda", requires_grad=True)
        sim.blas_workspace("before")
        start = torch.cuda.memory_allocated()
        out = run(model, x, reentrant)
        kept = torch.cuda.memory_allocated() - start
        forward = sim.operators
        out.sum().backward()
        assert all(p.grad is not None for p in model.parameters())
        assert x.grad is not None
        return kept, sim.operators - forward


def _plain(model, x, reentrant):
    return model(x)


def _each(model, x, reentrant):
    for block in model:
        x = checkpoint(block, x, use_reentrant=reentrant)
    return x


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_keeps_the_inputs_of_blocks(reentrant: bool) -> None:
    """Eight outputs of 2 MiB instead of two tensors and a mask a block; backward repeats the forward."""
    kept, repeated = _kept(_each, reentrant)
    plain, once = _kept(_plain, reentrant)
    assert kept == 8 * 2 * MIB
    assert plain == 8 * (2 + 2) * MIB + 8 * MIB // 2
    assert repeated > once


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_in_segments(reentrant: bool) -> None:
    """Two segments: the first keeps its end; the last, of four blocks, runs plainly."""
    kept, _ = _kept(lambda model, x, re: checkpoint_sequential(model, 2, x, use_reentrant=re), reentrant)
    assert kept == 2 * MIB + 4 * (4 * MIB + MIB // 2)


def test_nested_checkpoints() -> None:
    """A checkpoint inside a checkpoint recomputes twice and gives a gradient."""
    with memlens.simulate(gpu="A100 40GB"):
        layer = nn.Linear(512, 512).cuda()
        x = torch.empty(1024, 512, device="cuda", requires_grad=True)

        def inner(y):
            return checkpoint(lambda z: torch.sin(layer(z)), torch.sin(y), use_reentrant=False)

        start = torch.cuda.memory_allocated()
        out = checkpoint(inner, x, use_reentrant=False)
        assert torch.cuda.memory_allocated() - start < 2 * 2 * MIB + 9 * MIB
        out.sum().backward()
        assert x.grad.is_cuda


def test_selective_checkpointing_saves_what_the_policy_says() -> None:
    """The two products (2 MiB each) are saved, GELU's output is not."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        model = nn.Sequential(nn.Linear(512, 512), nn.GELU(), nn.Linear(512, 512)).cuda()
        x = torch.empty(1024, 512, device="cuda", requires_grad=True)
        sim.blas_workspace("before")
        start = torch.cuda.memory_allocated()
        out = checkpoint(
            model,
            x,
            use_reentrant=False,
            context_fn=lambda: create_selective_checkpoint_contexts([torch.ops.aten.addmm.default]),
        )
        assert torch.cuda.memory_allocated() - start == 2 * 2 * MIB
        out.sum().backward()
        assert x.grad is not None


@pytest.mark.parametrize("pinned", [True, False])
@pytest.mark.parametrize("rows", [16, 1024])
def test_saving_on_the_host_frees_the_device(pinned: bool, rows: int) -> None:
    """Nothing but the sum stays; in backward a saved tensor comes back for as long as it is used."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        x = torch.empty(rows, 1024, device="cuda", requires_grad=True)
        size = rows * 4096
        start = torch.cuda.memory_allocated()
        with torch.autograd.graph.save_on_cpu(pin_memory=pinned):
            y = x.exp().sin().sum()
        assert torch.cuda.memory_allocated() - start == 512
        host = sim.ledger.host_bytes
        assert host == (2 * size if rows == 1024 else 0)  # small ones are real
        torch.cuda.reset_peak_memory_stats()
        y.backward()
        assert x.grad.is_cuda
        assert torch.cuda.max_memory_allocated() - start >= 2 * size
        assert sim.ledger.host_bytes == 0


def test_hooks_on_saved_tensors_see_the_device() -> None:
    """What packing is given, and what unpacking returns, are tensors of the device."""
    seen = []
    with memlens.simulate(gpu="A100 40GB"):
        x = torch.empty(16, 16, device="cuda", requires_grad=True)

        def pack(tensor):
            seen.append(tensor.device.type)
            return tensor.to("cpu")

        def unpack(tensor):
            seen.append(tensor.device.type)
            return tensor.cuda()

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            y = torch.nn.functional.dropout(x, 0.5)
        y.sum().backward()
        assert x.grad.is_cuda
    assert seen == ["cuda", "cpu"]


def test_gradients_accumulate_in_place() -> None:
    """The second backward needs the new gradient beside the old one, and no sum of both."""
    with memlens.simulate(gpu="A100 40GB"):
        x = torch.empty(1024, 1024, device="cuda", requires_grad=True)
        (x * 2).sum().backward()
        gradient, start = x.grad, torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        (x * 2).sum().backward()
        assert x.grad is gradient
        assert torch.cuda.memory_allocated() == start
        assert torch.cuda.max_memory_allocated() - start <= 4 * MIB + 3 * 512


def test_zeroed_gradients_stay() -> None:
    """`set_to_none=False` fills the gradient with zeros, in place; the default gives it back."""
    with memlens.simulate(gpu="A100 40GB"):
        layer = nn.Linear(1024, 1024, bias=False).cuda()
        layer(torch.empty(8, 1024, device="cuda")).sum().backward()
        start = torch.cuda.memory_allocated()
        layer.zero_grad(set_to_none=False)
        assert torch.cuda.memory_allocated() == start
        layer.zero_grad()
        assert start - torch.cuda.memory_allocated() == 4 * MIB


def test_masks_of_a_formula_are_combined_in_place_by_clamp_alone() -> None:
    """Clamp's backward writes into the first of its two masks; hardswish's second backward makes a third."""

    def masks(function: Any) -> list[int]:
        with memlens.simulate("T4") as sim:
            x = torch.ones(1000, device="cuda", requires_grad=True)
            (grad,) = torch.autograd.grad(function(x).sum(), x, create_graph=function is hardswish)
            if grad.requires_grad:
                grad.sum().backward()
            return [e.requested for e in sim.trace.events if isinstance(e, Alloc) and e.requested == 1000]

    hardswish = torch.nn.functional.hardswish
    assert len(masks(hardswish)) == 3
    if torch.__version__ < "2.14":  # which has another formula
        assert len(masks(lambda x: x.clamp(torch.zeros(1000).cuda(), torch.ones(1000).cuda()))) == 2
