"""A copy of a real model without its weights, so that the model itself is never moved or changed."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from memlens.errors import TargetError
from memlens.scenarios.user_frames import last_line

# tensors up to this size keep their values: models read counters, scales and tables of their own
KEPT_BYTES = 64 << 10


def copy_without_weights(model: nn.Module) -> nn.Module:
    """A deep copy whose tensors are on the simulated host: same shapes, sharing, flags and hooks.

    To be called inside the simulation, where large host tensors have no memory behind them. Tied weights
    stay tied, because the copy asks for each tensor once. Raises TargetError when something in the model
    refuses to be copied, such as an open file.
    """
    memo: dict[int, Any] = {id(t): empty_like(t) for t in tensors_of(model)}
    try:
        return copy.deepcopy(model, memo)
    except Exception as problem:
        raise TargetError(
            f"{type(model).__name__} cannot be copied: {last_line(problem)}",
            hint="pass the class or a function that makes the model instead of the model",
        ) from problem


def tensors_of(model: nn.Module) -> Iterator[torch.Tensor]:
    """Every tensor that hangs on a module: parameters, buffers, and plain attributes."""
    for module in model.modules():
        yield from (p for p in module._parameters.values() if p is not None)
        yield from (b for b in module._buffers.values() if b is not None)
        yield from (value for value in vars(module).values() if isinstance(value, torch.Tensor))


def empty_like(tensor: torch.Tensor) -> torch.Tensor:
    """Its copy: dtype, shape, strides and flags without the data, unless it is small."""
    if is_lazy(tensor):
        # its own deepcopy asks for `data`, which a simulation cannot see the shape of
        kind: Any = type(tensor)
        return kind(tensor.requires_grad, "cpu", tensor.dtype)
    with torch.no_grad():
        source = tensor.detach()
        if tensor.device.type == "cpu" and tensor.nbytes <= KEPT_BYTES:
            data = source.clone()
        else:
            data = torch.empty_strided(
                tensor.shape, tensor.stride(), dtype=tensor.dtype, layout=tensor.layout, device="cpu"
            )
    if isinstance(tensor, nn.Parameter):
        data = nn.Parameter(data, requires_grad=tensor.requires_grad)
    else:
        data.requires_grad_(tensor.requires_grad)
    data.__dict__.update(tensor.__dict__)
    return data
