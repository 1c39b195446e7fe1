"""Grouped matrix products."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from tests.support.asked import asked_in  # noqa: E402

import memlens  # noqa: E402

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(not hasattr(torch, "_grouped_mm"), reason="this torch has no grouped products"),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_tokens_times_experts(dtype) -> None:
    """100 tokens of width 64 times 4 experts of 64 x 32: 100 x 32 out, in either dtype."""
    with memlens.simulate(gpu="H100") as sim:
        tokens = torch.empty(100, 64, device="cuda", dtype=dtype)
        experts = torch.empty(4, 64, 32, device="cuda", dtype=dtype)
        ends = torch.tensor([25, 50, 75, 100], dtype=torch.int32).cuda()
        sizes = asked_in(sim, lambda: torch._grouped_mm(tokens, experts, offs=ends))
    assert sizes[0] == 100 * 32 * dtype.itemsize


def test_the_gradient_of_the_experts_is_theirs() -> None:
    """Backward makes 4 x 64 x 32 floats for the experts and 100 x 64 for the tokens."""
    with memlens.simulate(gpu="H100") as sim:
        tokens = torch.empty(100, 64, device="cuda", requires_grad=True)
        experts = torch.empty(4, 64, 32, device="cuda", requires_grad=True)
        ends = torch.tensor([25, 50, 75, 100], dtype=torch.int32).cuda()
        out = torch._grouped_mm(tokens, experts, offs=ends).sum()
        sizes = asked_in(sim, out.backward)
    assert 4 * 64 * 32 * 4 in sizes
    assert 100 * 64 * 4 in sizes
    assert experts.grad.shape == (4, 64, 32)
