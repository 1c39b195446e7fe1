"""Dropout as CUDA does it: a fused kernel whose mask has one byte an element."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import memlens  # noqa: E402
from memlens.units import MIB  # noqa: E402

pytestmark = pytest.mark.torch


def _held(function) -> int:
    """Bytes that a function adds to 4 MiB of input and keeps for backward, its output included."""
    with memlens.simulate(gpu="A100 40GB"):
        x = torch.empty(1024, 1024, device="cuda", requires_grad=True)
        before = torch.cuda.memory_allocated()
        y = function(x)
        held = torch.cuda.memory_allocated() - before
        peak = torch.cuda.max_memory_allocated() - before
        assert peak == held, "a fused kernel needs no temporary"
        y.sum().backward()
        return held


def test_training_keeps_the_output_and_a_byte_per_element() -> None:
    """4 MiB of output and a 1 MiB mask."""
    assert _held(lambda x: torch.nn.functional.dropout(x, 0.1)) == 5 * MIB


def test_the_module_does_the_same() -> None:
    """`nn.Dropout` in train mode is the same operator; in eval mode it is nothing."""
    assert _held(torch.nn.Dropout(0.5)) == 5 * MIB
    assert _held(torch.nn.Dropout(0.5).eval()) == 0


@pytest.mark.parametrize(("p", "held"), [(0.0, 0), (1.0, 4 * MIB + 512)])
def test_the_extremes_take_no_mask(p: float, held: int) -> None:
    """p=0 returns the input; p=1 multiplies by one zero of 512 bytes."""
    assert _held(lambda x: torch.nn.functional.dropout(x, p)) == held


def test_inference_mode_is_the_same_operator() -> None:
    """Above or below autograd, training-mode dropout makes output and mask; the mask dies at once."""
    with memlens.simulate(gpu="A100 40GB"), torch.inference_mode():
        x = torch.empty(1024, 1024, device="cuda")
        y = torch.nn.functional.dropout(x, 0.1)
        assert y.shape == x.shape
        assert torch.cuda.memory_allocated() == 8 * MIB
        assert torch.cuda.max_memory_allocated() == 9 * MIB


def test_in_place_dropout_keeps_a_mask_of_the_inputs_dtype() -> None:
    """`dropout_` is not fused: noise of the input's shape and dtype, 4 MiB, saved by the multiplication."""
    assert _held(lambda x: torch.nn.functional.dropout(x * 1, 0.1, inplace=True)) == 8 * MIB


@pytest.mark.parametrize("function", ["feature_dropout", "alpha_dropout", "feature_alpha_dropout"])
def test_the_other_dropouts_decompose(function: str) -> None:
    """They run forward and backward on the device; none of them is the fused kernel."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        x = torch.empty(16, 64, 32, device="cuda", requires_grad=True)
        getattr(torch, function)(x, 0.3, True).sum().backward()
        assert x.grad is not None
    assert all(
        getattr(event, "site", None) is None or event.site.operator != "native_dropout"
        for event in sim.trace.events
    )


def test_a_large_host_tensor_does_not_use_the_devices_kernel() -> None:
    """Dropout on the host costs the device nothing."""
    with memlens.simulate(gpu="A100 40GB"):
        x = torch.empty(1024, 1024)
        torch.nn.functional.dropout(x, 0.1)
        assert torch.cuda.max_memory_allocated() == 0
