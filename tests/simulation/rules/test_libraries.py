"""Fused gradients of activations, and what cuSOLVER and cuFFT are taken to need."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from tests.support.asked import asked_in  # noqa: E402

import memlens  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("activation", [F.silu, F.mish])
def test_the_gradient_of_an_activation_is_one_kernel(activation) -> None:
    """32 KiB of gradient and nothing else, where other devices make five or more tensors."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        x = torch.empty(64, 128, device="cuda", requires_grad=True)
        out = activation(x)
        grad = torch.empty_like(out)
        assert asked_in(sim, lambda: out.backward(grad)) == [32_768]


def test_the_gradient_of_silu_s_gradient_is_composed() -> None:
    """`create_graph=True` still differentiates twice."""
    with memlens.simulate(gpu="A100 40GB"):
        x = torch.empty(64, 128, device="cuda", requires_grad=True)
        (first,) = torch.autograd.grad(F.silu(x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        assert second.shape == x.shape


def test_a_factorisation_works_in_a_copy_and_says_what_it_assumes() -> None:
    """A 256 x 256 matrix: its copy and a workspace of the same size; up to three more of them."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        x = torch.empty(256, 256, device="cuda")
        assert asked_in(sim, lambda: torch.linalg.cholesky(x)).count(256 * 256 * 4) >= 3
    (assumption,) = [a for a in sim.trace.assumptions if "factorisation" in a.what]
    size = 256 * 256 * 4
    assert assumption.allocated_range == (-size, 3 * size)
    assert (assumption.low_bytes, assumption.high_bytes) == (0, 0)  # one segment of 2 MiB holds them all


def test_least_squares_have_shapes_and_a_workspace() -> None:
    """More equations than unknowns: a residual a right-hand side; solved in a buffer of all 64 rows."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        a, b = torch.empty(3, 64, 8, device="cuda"), torch.empty(3, 64, 2, device="cuda")
        sizes = asked_in(sim, lambda: torch.linalg.lstsq(a, b))
        found = torch.linalg.lstsq(a, b)
        assert [tuple(t.shape) for t in found] == [(3, 8, 2), (3, 2), (0,), (0,)]
        assert 3 * 64 * 2 * 4 in sizes
        assert sizes.count(3 * 64 * 8 * 4) >= 1
        assert torch.linalg.lstsq(torch.empty(4, 8, device="cuda"), b[0, :4]).solution.shape == (8, 2)
        assert torch.linalg.lstsq(a, b[..., 0]).solution.shape == (3, 8)
        with pytest.raises(RuntimeError, match="not supported on CUDA"):
            torch.linalg.lstsq(a, b, driver="gelsd")
        a.requires_grad_()
        torch.linalg.lstsq(a, b).solution.sum().backward()
        assert a.grad.shape == a.shape
    assert any("factorisation" in a.what for a in sim.trace.assumptions)


def test_a_fourier_transform_has_a_work_area() -> None:
    """64 x 128 complex numbers, and as much again."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        x = torch.empty(64, 128, device="cuda", dtype=torch.complex64)
        assert asked_in(sim, lambda: torch.fft.fft(x)) == [65_536, 65_536]
    assert "1 Fourier transforms" in sim.trace.assumptions[0].what


def test_ctc_keeps_a_table_and_makes_another_in_backward() -> None:
    """50 steps of 4 samples with targets of 10: (4, 50, 21) floats, twice, beside the gradient."""
    table = 4 * 50 * 21 * 4
    with memlens.simulate(gpu="A100 40GB") as sim:
        scores = torch.empty(50, 4, 20, device="cuda", requires_grad=True)
        targets = torch.ones(4, 10, dtype=torch.int64, device="cuda")
        lengths = torch.full((4,), 50), torch.full((4,), 10)
        made = []
        forward = asked_in(sim, lambda: made.append(F.ctc_loss(scores, targets, *lengths)))
        backward = asked_in(sim, lambda: made[0].backward())
    assert forward.count(table) == 1
    assert [size for size in backward if size in (table, 50 * 4 * 20 * 4)] == [50 * 4 * 20 * 4, table]
