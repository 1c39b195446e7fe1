"""Rules get the operator's arguments by name, and what does not exist is refused at import."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from memlens.simulation.core.torch_operators import operator_names  # noqa: E402
from memlens.simulation.rules.binding import Signature  # noqa: E402

pytestmark = pytest.mark.torch
SORT = torch.ops.aten.sort.stable  # (self, *, stable, dim=-1, descending=False)


def test_arguments_are_bound_by_name_with_the_schema_s_defaults() -> None:
    """Given by place, by keyword or not at all: the rule sees the same names."""
    call = Signature(lambda cuda, dim, self, other=7: (dim, self, other)).bind(SORT)
    assert call("cuda", ("x",), {}) == (-1, "x", 7)
    assert call("cuda", ("x",), {"dim": 2, "stable": True}) == (2, "x", 7)


def test_a_scratch_rule_gets_the_outputs_if_it_asks() -> None:
    """A last parameter `outputs` is not looked up in the schema."""
    asks = Signature(lambda cuda, self, outputs: (self, outputs), gets_outputs=True)
    assert asks.bind(SORT)("cuda", ("x",), {}, "y") == ("x", "y")
    assert Signature(lambda cuda: 3, gets_outputs=True).bind(SORT)("cuda", ("x",), {}, "y") == 3


def test_a_parameter_before_a_slash_is_taken_by_place() -> None:
    """For rules of several operators that name their first argument differently."""
    assert Signature(lambda cuda, first, /: first).bind(SORT)("cuda", ("x",), {}) == "x"


def test_a_misspelt_argument_is_refused() -> None:
    """Also one with a default, where no operator of the rule has it."""
    for function in (lambda cuda, axis: 0, lambda cuda, axis=None: 0):
        with pytest.raises(
            ValueError, match=r"aten::sort.stable has no argument `axis`; it has self, stable"
        ):
            Signature(function).check([SORT])


def test_a_fact_about_an_unknown_operator_is_refused() -> None:
    """`optional` names are left out instead."""
    with pytest.raises(ValueError, match="aten::admm is no operator of this torch"):
        operator_names("mm admm")
    assert operator_names("mm", optional="admm") == {"mm"}
