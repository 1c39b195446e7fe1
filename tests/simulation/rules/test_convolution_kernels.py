"""Convolutions in the simulation: layouts, workspaces, the order of backward, the range."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from tests.support.asked import asked_in  # noqa: E402

import memlens  # noqa: E402
from memlens.model import Alloc, Category  # noqa: E402

pytestmark = pytest.mark.torch
X, W = 32 * 64 * 56 * 56 * 4, 64 * 64 * 9 * 4  # bytes of x (and y) and w


def layers(**kinds):
    x = torch.empty(32, 64, 56, 56, device="cuda", requires_grad=True, **kinds)
    w = torch.empty(64, 64, 3, 3, device="cuda", requires_grad=True, **kinds)
    return x, w


def test_forward_takes_its_workspace_after_its_output() -> None:
    """64 channels at 56 x 56 on an A100 with TF32: y, then x + w + 16 bytes."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        x, w = layers()
        assert asked_in(sim, lambda: F.conv2d(x, w, padding=1)) == [X, X + W + 16]


def test_backward_runs_the_input_s_gradient_before_the_weight_s() -> None:
    """Each gradient with its own workspace of x + y + w, one after the other."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        x, w = layers()
        y = F.conv2d(x, w, padding=1)
        grad = torch.empty_like(y)
        before = len(sim.events)
        y.backward(grad)
        events = sim.events[before:]
    allocs = [event for event in events if isinstance(event, Alloc)]
    assert [event.requested for event in allocs] == [X, 2 * X + W + 16, W, 2 * X + W + 16]
    assert [event.category is Category.WORKSPACE for event in allocs] == [False, True, False, True]


def test_a_bias_is_added_in_place_and_its_gradient_is_a_sum() -> None:
    """Forward allocates no more than without; back, a vector of 64 and the staging of its sum."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        x, w = layers()
        bias = torch.empty(64, device="cuda", requires_grad=True)
        assert asked_in(sim, lambda: F.conv2d(x, w, bias, padding=1)) == [X, X + W + 16]
        y = F.conv2d(x, w, bias, padding=1)
        grad = torch.empty_like(y)
        assert asked_in(sim, lambda: y.backward(grad))[4] == 64 * 4


def test_channels_last_spreads_and_copies_what_is_not() -> None:
    """A channels-last weight turns the call: the contiguous input is copied, the result is channels last."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        x, w = layers(dtype=torch.bfloat16)
        w = w.detach().to(memory_format=torch.channels_last)
        made = []
        assert asked_in(sim, lambda: made.append(F.conv2d(x, w, padding=1))) == [X // 2, X // 2]
        assert made[0].is_contiguous(memory_format=torch.channels_last)


def test_without_cudnn_there_is_no_workspace() -> None:
    """`torch.backends.cudnn.enabled = False` is honoured, and put back with the simulation."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        torch.backends.cudnn.enabled = False
        x, w = layers()
        assert asked_in(sim, lambda: F.conv2d(x, w, padding=1)) == [X]


def test_a_transposed_convolution_has_the_shape_that_torch_says() -> None:
    """64 channels from 28 x 28 to 56 x 56."""
    with memlens.simulate(gpu="A100 40GB"):
        x = torch.empty(2, 64, 28, 28, device="cuda", requires_grad=True)
        y = torch.nn.ConvTranspose2d(64, 32, 2, stride=2).cuda()(x)
        assert y.shape == (2, 32, 56, 56)
        y.sum().backward()
        assert x.grad.shape == x.shape


def test_one_assumption_sums_up_all_calls() -> None:
    """Three calls, one entry: the peak without workspaces, and with the largest that the rules allow."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        x, w = layers()
        F.conv2d(x, w, padding=1).sum().backward()
    found = [a for a in sim.trace.assumptions if "convolution" in a.what]
    assert len(found) == 1
    assert "3 convolution calls" in found[0].what
    assert found[0].low_bytes < 0 < found[0].high_bytes


def test_a_convolution_on_the_host_is_torch_s_own() -> None:
    """Real tensors stay real, and take nothing of the device."""
    with memlens.simulate(gpu="A100 40GB"):
        y = F.conv2d(torch.ones(1, 1, 4, 4), torch.ones(1, 1, 3, 3))
        assert y.tolist() == [[[[9.0, 9.0], [9.0, 9.0]]]]
        assert torch.cuda.memory_allocated() == 0
