"""Rules get the operator's arguments by name, and what does not exist is refused at import."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from tests.support.asked import asked  # noqa: E402

from memlens.simulation.core.torch_operators import operator_names  # noqa: E402
from memlens.simulation.rules.binding import Signature  # noqa: E402
from memlens.simulation.rules.registry import FALLBACKS, OPERATORS, SCRATCH  # noqa: E402

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


def _into(function: Any, *dtypes: torch.dtype) -> Any:
    """A call of `function` along the first dimension that writes into new tensors like its input."""

    def call(x: Any) -> Any:
        made = [torch.empty_like(x, dtype=dtype) for dtype in dtypes]
        return function(x, 0, out=made[0] if len(made) == 1 else tuple(made))

    return call


def _made(x: Any) -> Any:
    return x.new_empty(()), x.new_empty((), dtype=torch.int64)


@pytest.mark.parametrize(
    ("plain", "written"),
    [
        (lambda x: x.cumsum(0), _into(torch.cumsum, torch.float32)),
        (lambda x: x.sort(0), _into(torch.sort, torch.float32, torch.int64)),
        (lambda x: x.t().mode(0), lambda x: torch.mode(x.t(), 0, out=_made(x))),
    ],
    ids=["cumsum", "sort", "mode"],
)  # fmt: skip
def test_what_writes_into_out_has_the_same_scratch(plain: Any, written: Any) -> None:
    """The kernel is the same: outputs first, then what it works with."""
    assert asked(written, (1 << 20,)) == asked(plain, (1 << 20,))


def test_what_writes_in_place_has_the_scratch_alone() -> None:
    """A scan in place: no output, the same temporary storage."""
    output, *temporary = asked(lambda x: x.cumsum(0), (1 << 20,))
    assert output == 4 << 20
    assert asked(lambda x: x.cumsum_(0), (1 << 20,)) == temporary


def test_no_rule_hides_another() -> None:
    """A scratch rule does not run for an operator whose outputs a rule makes: that rule allocates all."""
    names = {operator.name().removesuffix(".default") for operator in SCRATCH}
    assert names & set(FALLBACKS) == {"aten::nll_loss_forward"}  # its meta kernel mostly works
    assert set(SCRATCH) & set(OPERATORS) == set()


def test_counting_bins_copies_a_column() -> None:
    """bincount looks at the extrema of a contiguous copy before it makes its 5 bins."""
    column = asked(lambda x: x.to(torch.int64)[:, 0].bincount(minlength=5), (100, 2))
    assert column == [1600, 800, 8, 8, 40]
