"""Which module a tensor is a parameter of."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from memlens.model import NOWHERE  # noqa: E402
from memlens.simulation.core.attribution import Attribution  # noqa: E402

pytestmark = pytest.mark.torch


def test_a_dead_parameters_id_names_no_other_tensor() -> None:
    """A tensor that gets the id of a dead parameter is not taken for that parameter."""
    attribution = Attribution()
    module = nn.Linear(2, 2)
    attribution.name_modules(nn.Sequential(module))
    assert attribution.owned(module.weight, NOWHERE).module == "0"
    other = torch.empty(2)
    attribution._owners[id(other)] = attribution._owners.pop(id(module.weight))  # as after its death
    assert attribution.owned(other, NOWHERE).module is None
