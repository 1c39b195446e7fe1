"""Sparse tensors of the simulated device: their indices and values are tensors of the ledger.

A sparse tensor without data (torch's `SparseMeta` and `SparseCsrMeta`) holds the very tensors that it was
made of; so what it keeps alive is counted, for as long as it lives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_META = torch.device("meta")
TRANSPOSED = {
    torch.sparse_csr: torch.sparse_csc, torch.sparse_csc: torch.sparse_csr,
    torch.sparse_bsr: torch.sparse_bsc, torch.sparse_bsc: torch.sparse_bsr,
}  # fmt: skip


def is_sparse(value: Any) -> bool:
    return (
        isinstance(value, Tensor) and value.layout is not torch.strided and value.layout is not torch.jagged
    )


def has_sparse(values: tuple[Any, ...]) -> bool:
    """Whether one of an operator's arguments is sparse: asked often, so briefly."""
    for value in values:
        if isinstance(value, Tensor) and value.layout is not torch.strided:
            return value.layout is not torch.jagged
    return False


def parts_of(tensor: Tensor) -> tuple[Tensor, ...]:
    """The tensors that hold a sparse tensor's bytes; the last are its values."""
    if tensor.layout is torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    return tensor.ccol_indices(), tensor.row_indices(), tensor.values()


def rebuilt(
    tensor: Tensor,
    change: Callable[[Tensor], Tensor],
    size: tuple[int, ...] | None = None,
    layout: torch.layout | None = None,
) -> Tensor:
    """A sparse tensor whose parts are the changed ones; of the same shape and layout if no other is given."""
    parts = [change(part) for part in parts_of(tensor)]
    if tensor.layout is torch.sparse_coo:
        indices, values = parts
        return coo(tuple(tensor.shape), indices, values, tensor.is_coalesced())
    made: Tensor = torch.ops.aten._sparse_compressed_tensor_unsafe.default(
        *parts,
        size or tuple(tensor.shape),
        dtype=parts[-1].dtype,
        layout=layout or tensor.layout,
        device=parts[-1].device,
    )
    return made


def coo(size: tuple[int, ...], indices: Tensor, values: Tensor, is_coalesced: bool = False) -> Tensor:
    """A sparse tensor of these indices (dimensions x entries) and values (entries x dense dimensions)."""
    made: Tensor = torch.ops.aten._sparse_coo_tensor_with_dims_and_tensors.default(
        indices.shape[0], values.dim() - 1, size, indices, values,
        dtype=values.dtype, layout=torch.sparse_coo, device=values.device, is_coalesced=is_coalesced,
    )  # fmt: skip
    return made
