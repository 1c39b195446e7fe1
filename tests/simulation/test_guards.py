"""Checks that end a program are taken to pass: the value they ask for is the one by which it goes on.

PYTEST_DONT_REWRITE: the checks below have to be as they are written.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

pytest.importorskip("torch")

import torch

import memlens

pytestmark = pytest.mark.torch


def labels() -> torch.Tensor:
    return torch.randint(0, 5, (16, 16), device="cuda")


def is_low(values: torch.Tensor) -> bool:
    return bool((values < 2).all())


def asserted() -> None:
    values = labels()
    assert values.min() >= 0 and values.max() < 5, "out of range"  # noqa: PT018
    assert not (values == 3).any()
    assert is_low(values)
    assert all((row < 2).any() for row in values)
    assert (values > 1).any().item() is True
    assert values.shape == (16, 16) and 0 <= values.min() <= values.max() < 2  # noqa: PT018
    torch._assert((values > 9).any(), "as a function")
    torch.testing.assert_close(values.float(), values.float())
    assert torch.equal(values, values + 1)


def raising() -> None:
    values = labels()
    if not (values > 3).all():
        raise ValueError("too low")
    if (values > 3).any() or values.float().mean() > 3:
        print("too high")
        sys.exit(1)
    if (values > 7).all():
        values += 1
    else:
        raise ValueError("in the other branch")
    if is_low(values) == False:  # noqa: E712
        raise ValueError("in a function")
    distinct = torch.unique(values).sum() == 7
    if not distinct:
        raise ValueError("a name")
    fits = bool((values.sum() < 9).item())
    assert fits


def numbers() -> None:
    values, classes = labels(), 5
    assert values.max().item() == classes - 1
    assert values.float().std().item() < 0.5
    assert 3 < int(values.max()) < classes
    if values.min().item() > -3:
        raise ValueError("not low enough")


@pytest.mark.parametrize("checks", [asserted, raising, numbers])
@pytest.mark.parametrize("way", [False, True])
def test_checks_pass(checks: Callable[[], None], way: bool) -> None:
    """Whatever an unknown condition is taken to be; and no condition is left to be tried the other way."""
    with memlens.simulate(gpu="T4") as sim:
        sim.values.unknown_is = way
        checks()
    assert list(sim.values.conditions) == []
    told = [one.why for one in sim.trace.assumptions if "read from the device" in one.what]
    assert any("would end the program otherwise" in why for why in told)


def test_a_condition_that_ends_nothing_is_unknown() -> None:
    """A branch that goes on, an early return, and a branch whose other side raises as well."""
    with memlens.simulate(gpu="T4") as sim:
        values = labels()
        seen = []
        for number in range(2):
            if (values > number).any():
                seen.append("here")
            else:
                seen.append("there")
        positive = bool((values > 0).all())
        seen.append(positive)
    assert seen == ["there", "there", False]
    assert len(sim.values.conditions) == 2


def test_a_failing_check_on_known_values_fails() -> None:
    """Values that were uploaded are known, and a wrong one is found."""
    with memlens.simulate(gpu="T4"):
        values = torch.tensor([1, 2, 9]).cuda()
        with pytest.raises(AssertionError, match="known"):
            assert values.max() < 5, "known"
