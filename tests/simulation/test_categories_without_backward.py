"""What a forward leaves where no backward follows."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import memlens  # noqa: E402
from memlens.explanation.top_holders import notes  # noqa: E402
from memlens.model import Category  # noqa: E402
from memlens.units import MIB  # noqa: E402

pytestmark = pytest.mark.torch


def run(gradients: bool) -> memlens.Trace:
    """Three forwards of a ReLU on 4 MiB; the mean of each is added up."""
    layer = torch.nn.Sequential(torch.nn.Linear(1024, 1024, bias=False), torch.nn.ReLU())
    with memlens.simulate("T4") as sim, torch.set_grad_enabled(gradients):
        layer.cuda()
        total = torch.zeros((), device="cuda")
        for _ in range(3):
            total = total + layer(torch.randn(1024, 1024, device="cuda")).mean()
    return sim.trace


def test_a_forgotten_no_grad_keeps_activations() -> None:
    """Inputs and outputs of 4 MiB stay for a backward that never comes, and that is said."""
    trace = run(gradients=True)
    held = trace.breakdown()
    assert held.by_category()[Category.ACTIVATION] >= 12 * MIB
    (note,) = notes(trace, held)
    assert note.startswith("no backward follows: torch.no_grad() around the forward saves up to 20.00 MiB")


def test_under_no_grad_nothing_is_kept() -> None:
    """The same forwards keep nothing, and nothing is said."""
    trace = run(gradients=False)
    assert Category.ACTIVATION not in trace.breakdown().by_category()
    assert list(notes(trace, trace.breakdown())) == []
