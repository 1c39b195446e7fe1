"""Batch normalisation: what is kept, and that the host computes for itself."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.support.asked import asked_in  # noqa: E402

import memlens  # noqa: E402

pytestmark = pytest.mark.torch


def test_training_keeps_two_floats_a_channel() -> None:
    """bfloat16: the output, mean and 1/std in float32, on every torch alike."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        x = torch.empty(4, 8, 16, 16, device="cuda", dtype=torch.bfloat16)
        norm = torch.nn.BatchNorm2d(8, device="cuda")
        assert asked_in(sim, lambda: norm(x))[-3:] == [4 * 8 * 256 * 2, 32, 32]
        norm.eval()
        assert asked_in(sim, lambda: norm(x)) == [4 * 8 * 256 * 2]


def test_channels_last_stays_channels_last() -> None:
    """The output is laid out as the input, and so is the gradient."""
    with memlens.simulate(gpu="A100 40GB"):
        x = torch.empty(4, 8, 16, 16, device="cuda").to(memory_format=torch.channels_last).requires_grad_()
        out = torch.nn.BatchNorm2d(8, device="cuda")(x)
        assert out.is_contiguous(memory_format=torch.channels_last)
        out.sum().backward()
        assert x.grad.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("tracks", [True, False])
def test_the_host_computes_for_itself(tracks: bool) -> None:
    """A real tensor is normalised: mean 0; and one too large to be real takes nothing of the device."""
    with memlens.simulate(gpu="A100 40GB"):
        norm = torch.nn.BatchNorm1d(2, track_running_stats=tracks)
        assert norm(torch.tensor([[0.0, 1.0], [2.0, 5.0]])).mean().abs().item() < 1e-6
        norm(torch.empty(1_000_000, 2))
        assert torch.cuda.memory_allocated() == 0
