"""Normalisations, softmax and losses."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from tests.support.asked import asked, asked_in  # noqa: E402

import memlens  # noqa: E402
from memlens.simulation.rules.normalization import gain_partials  # noqa: E402

pytestmark = pytest.mark.torch
has_fused_rms = hasattr(torch.ops.aten, "_fused_rms_norm_backward")


def test_layer_norm_keeps_two_floats_a_row() -> None:
    """bfloat16: the output, and mean and 1/std in float32."""
    found = asked(lambda x: F.layer_norm(x, (256,)), (64, 256), dtype=torch.bfloat16)
    assert found == [64 * 256 * 2, 256, 256]


def test_many_narrow_rows_sum_a_gain_s_gradient_in_parts() -> None:
    """131,072 rows of 768 bfloat16 on 108 multiprocessors: 32,768 // 24 blocks of rows."""
    assert gain_partials(131_072, 768, 2, 108) == 1365 * 768 * 2
    assert gain_partials(65_536, 768, 2, 108) == 0
    assert gain_partials(131_072, 8192, 2, 108) == 0


@pytest.mark.skipif(not has_fused_rms, reason="one kernel since torch 2.9")
def test_rms_norm_is_one_kernel_forward_and_backward() -> None:
    """The output and a float32 per row; back, the two gradients and nothing else."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        x = torch.empty(64, 256, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        gain = torch.ones(256, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        forward = asked_in(sim, lambda: F.rms_norm(x, (256,), gain))
        out = F.rms_norm(x, (256,), gain)
        grad = torch.empty_like(out)
        backward = asked_in(sim, lambda: out.backward(grad))
    assert forward == [64 * 256 * 2, 64 * 4]
    assert backward == [64 * 256 * 2, 256 * 2]


@pytest.mark.skipif(not has_fused_rms, reason="one kernel since torch 2.9")
@pytest.mark.filterwarnings("ignore:Mismatch dtype")
def test_rms_norm_of_another_type_than_its_gain_is_six_operators() -> None:
    """PyTorch has no kernel for bfloat16 rows and a float32 gain: it composes them, in float32."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        x = torch.empty(64, 256, device="cuda", dtype=torch.bfloat16)
        gain = torch.ones(256, device="cuda")
        assert asked_in(sim, lambda: F.rms_norm(x, (256,), gain)).count(64 * 256 * 4) >= 2


def test_group_norm_takes_a_scale_and_a_shift_per_channel() -> None:
    """(2, 8) floats twice, beside output, mean and 1/std of (2, 4)."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        x = torch.empty(2, 8, 16, 16, device="cuda")
        gain = torch.ones(8, device="cuda")
        assert asked_in(sim, lambda: F.group_norm(x, 4, gain, gain)) == [2 * 8 * 256 * 4, 32, 32, 64, 64]


def test_softmax_copies_what_is_not_contiguous() -> None:
    """The transposed input is made contiguous first."""
    assert asked(lambda x: x.t().softmax(0), (64, 32)) == [8192, 8192]
    assert asked(lambda x: x.softmax(-1), (64, 32)) == [8192]


def test_softmax_s_gradient_multiplies_into_a_tensor() -> None:
    """Gradient times output is as large as the gradient, beside the result."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        x = torch.empty(64, 32, device="cuda", requires_grad=True)
        out = x.softmax(-1)
        grad = torch.empty_like(out)
        assert asked_in(sim, lambda: out.backward(grad)) == [8192, 8192]
