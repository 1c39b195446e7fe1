"""The user's own tensors as a call of the model on the simulated device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from memlens.scenarios.user_frames import shape_text

GPU = torch.device("cuda")


def moved(value: Any, memo: dict[int, Tensor] | None = None) -> Any:
    """A copy on the simulated device of every tensor in a call's arguments, the same tensor once."""
    memo = {} if memo is None else memo
    if isinstance(value, Tensor):
        if id(value) not in memo:
            memo[id(value)] = _copied(value)
        return memo[id(value)]
    if isinstance(value, Mapping):
        return {key: moved(item, memo) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [moved(item, memo) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _copied(tensor: Tensor) -> Tensor:
    if tensor.device.type == "cpu":
        return tensor.detach().to(GPU).requires_grad_(tensor.requires_grad)
    return torch.zeros(tensor.shape, dtype=tensor.dtype, device=GPU, requires_grad=tensor.requires_grad)


def as_call(data: Any, named: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """`input_data` as torchinfo takes it: one argument, a list of arguments, or arguments by name."""
    if isinstance(data, Mapping):
        return [], {**data, **named}
    return (list(data) if isinstance(data, (list, tuple)) else [data]), named


def batch_bytes(batch: list[Tensor]) -> int:
    """Bytes of the storages, each once."""
    storages = [tensor.untyped_storage() for tensor in batch]
    return sum({storage._cdata: storage.nbytes() for storage in storages}.values())


def describe(tensor: Tensor) -> str:
    """`float32:1x3x224x224`."""
    dtype = str(tensor.dtype).removeprefix("torch.")
    return f"{dtype}:{shape_text(tensor.shape)}"
