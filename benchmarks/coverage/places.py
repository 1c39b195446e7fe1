"""The two places where a program runs: a sample's tensors are copied there with strides, views and values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree


class Place:
    """Copies what a sample holds to `device`: "cpu" for the real run, "cuda" inside a simulation.

    Tensors that share a storage share the copy, so that views stay views; each copy is a leaf.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self._storages: dict[tuple[int, torch.dtype], Tensor] = {}
        self._kept: list[Tensor] = []  # a storage's address names it only while it lives

    def put(self, value: Any) -> Any:
        """`value` with every tensor and every mention of the CPU moved here; containers are kept."""
        return pytree.tree_map(self._leaf, value)

    def _leaf(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self.tensor(value)
        if isinstance(value, slice):
            return slice(*(self._leaf(part) for part in (value.start, value.stop, value.step)))
        if isinstance(value, torch.device) or value == "cpu":
            return type(value)(self.device)
        return value

    def tensor(self, tensor: Tensor) -> Tensor:
        copied = self._copy(tensor.detach())
        if type(tensor) is torch.nn.Parameter:
            return torch.nn.Parameter(copied, tensor.requires_grad)
        return copied.requires_grad_(tensor.requires_grad)

    def _copy(self, tensor: Tensor) -> Tensor:
        if tensor.layout is not torch.strided or type(tensor) is not Tensor:
            return tensor.clone().to(self.device)
        if tensor.is_conj():
            return self._copy(tensor.conj()).conj()
        if tensor.is_neg():
            return torch._neg_view(self._copy(torch._neg_view(tensor)))
        flat = self._whole_storage(tensor)
        return flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).detach()

    def _whole_storage(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        key = (storage._cdata, tensor.dtype)
        if key not in self._storages:
            flat = torch.empty(0, dtype=tensor.dtype).set_(storage)
            self._kept.append(tensor)
            self._storages[key] = flat.to(self.device, copy=True)
        return self._storages[key]


Prepare = Callable[[Place], Any]
Run = Callable[[Any], dict[str, Any]]
