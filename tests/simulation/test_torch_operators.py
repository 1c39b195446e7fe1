"""Names of operators: refused where they are wrong, left out where an older torch has none yet."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from memlens.simulation.core import torch_operators  # noqa: E402
from memlens.simulation.core.torch_operators import find_operator, find_operators, operator_names  # noqa: E402

pytestmark = pytest.mark.torch


def test_a_wrong_name_is_refused() -> None:
    """On the torch that the rules are written against."""
    with pytest.raises(ValueError, match="aten::admm is no operator of this torch"):
        operator_names("mm admm")
    with pytest.raises(ValueError, match="aten::admm is no operator of this torch"):
        find_operator("aten::admm")


def test_an_older_torch_leaves_out_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its programs cannot call that operator either."""
    monkeypatch.setattr(torch_operators, "CHECKED", False)
    assert operator_names("mm an_operator_of_tomorrow") == {"mm"}
    assert find_operator("aten::an_operator_of_tomorrow") is None
    assert find_operators("mm an_operator_of_tomorrow") == (torch.ops.aten.mm.default,)
