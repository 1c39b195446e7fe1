"""`torch.accelerator` says what `torch.cuda` says."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import memlens  # noqa: E402
from memlens.units import MIB  # noqa: E402

pytestmark = pytest.mark.torch


def test_the_neutral_names_answer_for_the_simulated_card() -> None:
    """Available, one device of type cuda, its current stream idle, its bytes those of the simulation."""
    with memlens.simulate(gpu="T4"):
        assert torch.accelerator.is_available()
        assert torch.accelerator.device_count() == 1
        assert torch.accelerator.current_accelerator() == torch.device("cuda")
        torch.accelerator.synchronize()
        x = torch.empty(1024, 1024, device="cuda")
        if hasattr(torch.accelerator, "memory_allocated"):
            assert torch.accelerator.memory_allocated() == 4 * MIB
        assert x.is_cuda


def test_an_optimizers_health_check_finds_no_capture() -> None:
    """Adam's step asks the current stream whether a graph is being captured: no."""
    with memlens.simulate(gpu="T4"):
        weight = torch.nn.Parameter(torch.empty(4, device="cuda"))
        optimizer = torch.optim.Adam([weight])
        weight.grad = torch.empty_like(weight)
        optimizer.step()
        assert optimizer.state[weight]["exp_avg"].is_cuda
