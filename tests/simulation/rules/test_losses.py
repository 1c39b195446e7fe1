"""CTC loss: what it keeps for backward."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from asked import asked, asked_in  # noqa: E402

import memlens  # noqa: E402

pytestmark = pytest.mark.torch

TIME, BATCH, CLASSES = 50, 4, 20


def loss(log_probs, lengths):
    """The loss of four samples whose targets are padded to 30 labels."""
    targets = torch.randint(1, CLASSES, (BATCH, 30), device="cuda")
    whole = torch.full((BATCH,), TIME)
    return torch.nn.functional.ctc_loss(log_probs, targets, whole, lengths, reduction="none")


def test_log_alpha_is_as_long_as_the_longest_target_on_the_host() -> None:
    """Lengths on the host say 12 labels at most: log_alpha is 4 x 50 x 25 floats, 20,000 bytes."""
    sizes = asked(lambda x: loss(x, torch.tensor([10, 12, 7, 3])), (TIME, BATCH, CLASSES), requires_grad=True)
    assert 20_000 in sizes


def test_unknown_lengths_are_bounded_and_said() -> None:
    """Lengths computed on the device are taken to be the padded 30 labels: 4 x 50 x 61 floats."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        x = torch.empty(TIME, BATCH, CLASSES, device="cuda", requires_grad=True)
        lengths = torch.randint(1, 12, (BATCH,), device="cuda") + 0
        sizes = asked_in(sim, lambda: loss(x, lengths))
    assert 4 * BATCH * TIME * 61 in sizes
    assert any("30 labels" in assumption.what for assumption in sim.trace.assumptions)


def test_backward_needs_log_beta_beside_the_gradient() -> None:
    """The gradient of 16,000 bytes and log_beta of 20,000."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        x = torch.empty(TIME, BATCH, CLASSES, device="cuda", requires_grad=True)
        out = loss(x, torch.tensor([10, 12, 7, 3])).sum()
        sizes = asked_in(sim, out.backward)
    assert 16_000 in sizes
    assert 20_000 in sizes
