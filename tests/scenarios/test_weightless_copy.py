"""The copy of a real model without its weights, and the real model afterwards."""

from __future__ import annotations

import threading

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from memlens.errors import TargetError
from memlens.scenarios.weightless_copy import KEPT_BYTES, copy_without_weights

pytestmark = pytest.mark.torch


def test_tied_weights_stay_tied() -> None:
    """One storage in the model is one in the copy."""
    model = nn.ModuleDict({"embed": nn.Embedding(10, 4), "head": nn.Linear(4, 10, bias=False)})
    model["head"].weight = model["embed"].weight
    copy = copy_without_weights(model)
    assert copy["head"].weight is copy["embed"].weight
    assert copy["embed"].weight is not model["embed"].weight


def test_flags_and_hooks_are_kept() -> None:
    """Training mode, requires_grad, attributes of parameters and hooks are those of the model."""
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval()
    model[0].weight.requires_grad_(False)
    model[0].weight.no_decay = True
    seen = []
    model[0].register_forward_hook(lambda *args: seen.append(1))
    copy = copy_without_weights(model)
    assert not copy.training
    assert not copy[0].weight.requires_grad
    assert copy[0].weight.no_decay
    copy(torch.zeros(2, 4))
    assert seen == [1]


def test_small_tensors_keep_their_values_and_large_ones_their_shape() -> None:
    """A counter is read by the model, a weight is only measured."""
    model = nn.Linear(256, 256)
    model.register_buffer("steps", torch.tensor(7))
    model.table = torch.arange(3.0)
    model.weight.data = torch.full((256, 256), 3.0).t()
    assert model.weight.nbytes > KEPT_BYTES
    copy = copy_without_weights(model)
    assert copy.steps.item() == 7
    assert copy.table.tolist() == [0, 1, 2]
    assert copy.weight.stride() == model.weight.stride()
    copy.table.zero_()
    assert model.table.tolist() == [0, 1, 2]


def test_what_cannot_be_copied_says_what_to_pass() -> None:
    """A lock in a module stops the copy; a factory would not need one."""
    model = nn.Linear(2, 2)
    model.lock = threading.Lock()
    with pytest.raises(TargetError, match="Linear cannot be copied: TypeError: cannot pickle") as error:
        copy_without_weights(model)
    assert "pass the class or a function" in (error.value.hint or "")
