"""Tensors inside whatever code passes around."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from memlens.simulation.core.tensors_in import tensors_in

pytestmark = pytest.mark.torch


@dataclass
class Output:
    loss: Any
    hidden: tuple[Any, ...] = ()


def test_tensors_are_found_however_deep_and_in_order() -> None:
    """Lists, tuples, mappings and dataclasses; a dataclass's type, text and None hold none."""
    a, b, c, d = (torch.ones(size) for size in (1, 2, 3, 4))
    found = list(tensors_in([a, OrderedDict(x=(b, None), y=Output(c, (d,))), Output, "text"]))
    assert [len(tensor) for tensor in found] == [1, 2, 3, 4]
