"""Operators that are one kernel to the dispatcher and several in C++, and views made in place."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import memlens  # noqa: E402
from memlens.model import Alloc  # noqa: E402

pytestmark = pytest.mark.torch
MIB = 1 << 20
N = 1 << 18  # elements of float32 in one MiB


def peak_mib(function: object, *shapes: tuple[int, ...]) -> float:
    """The peak of a call on tensors of these shapes, beside them, in MiB."""
    with memlens.simulate("A100 80GB"):
        tensors = [torch.empty(shape, device="cuda") for shape in shapes]
        held = torch.cuda.memory_allocated()
        kept = function(*tensors)  # type: ignore[operator]
        del kept
        return (torch.cuda.max_memory_allocated() - held) / MIB


def test_bce_with_logits_holds_two_tensors_of_its_inputs_size() -> None:
    """log_sigmoid and 1 - target, which becomes the loss; pos_weight adds pos_weight - 1 (Loss.cpp)."""
    loss = torch.nn.functional.binary_cross_entropy_with_logits
    assert peak_mib(loss, (N,), (N,)) == pytest.approx(2, abs=0.05)
    assert peak_mib(lambda x, y: loss(x, y, pos_weight=y), (N,), (N,)) == pytest.approx(3, abs=0.05)


def test_isinf_takes_the_absolute_values_first() -> None:
    """abs() == inf: one tensor of the input's size beside the answer's quarter."""
    assert peak_mib(torch.isinf, (N,)) == pytest.approx(1.25, abs=0.01)


def test_dist_holds_the_difference() -> None:
    """norm(a - b): one tensor of the inputs' size."""
    assert peak_mib(torch.dist, (N,), (N,)) == pytest.approx(1, abs=0.01)


def test_a_view_made_in_place_is_made_each_time() -> None:
    """The same call on the same shape twice changes both tensors."""
    with memlens.simulate("A100 80GB"):
        for _ in range(2):
            x = torch.empty(1, 3, 5, device="cuda")
            assert x.transpose_(1, 2).shape == (1, 5, 3)
            assert x.squeeze_(0).shape == (5, 3)
            assert x.unsqueeze_(1).shape == (5, 1, 3)


def test_isclose_combines_its_masks_in_place() -> None:
    """Of 1,000 floats: the equal ones, the allowed and the actual errors, and two masks more at most."""
    a, b = torch.ones(1000), torch.ones(1000)
    with memlens.simulate("T4") as sim:
        near = torch.isclose(a.cuda(), b.cuda(), equal_nan=True)
        assert (near.shape, near.dtype) == ((1000,), torch.bool)
        made = [event.requested for event in sim.trace.events if isinstance(event, Alloc)][2:]
    assert made.count(4000) == 6  # allowed and actual errors, and those of a sum, a difference and isfinite
    assert made[:3] == [1000] * 3  # equal, and two of not-a-number: combined in place
