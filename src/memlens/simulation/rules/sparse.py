"""Sparse tensors on CUDA: what their kernels make, by the number of entries (nnz).

How many entries are left when equal ones are summed depends on data: all are taken to be different, and a
prediction says so. Source: ATen/native/sparse/cuda/SparseCUDATensor.cu and SparseCUDATensorMath.cu.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from memlens.simulation.core.sparse import TRANSPOSED, coo, is_sparse, parts_of, rebuilt
from memlens.simulation.core.torch_operators import find_operators
from memlens.simulation.rules.common import INT64_BYTES, nbytes
from memlens.simulation.rules.registry import operator, passes_sparse, sparse

if TYPE_CHECKING:
    from memlens.simulation.core.cuda import Cuda

INT32_BYTES = 4
_aten = torch.ops.aten

# what reads a sparse tensor's parts or flags, or makes another one of the same parts
passes_sparse(
    find_operators(
        "detach alias _indices _values indices values is_coalesced _coalesced_ sparse_dim dense_dim _nnz "
        "_dimI _dimV crow_indices col_indices ccol_indices row_indices"
    )
)


@operator("aten::_sparse_coo_tensor_with_dims_and_tensors")
def make_coo(
    cuda: Cuda, sparse_dim: int, dense_dim: int, size: list[int], indices: Tensor, values: Tensor,
    dtype: torch.dtype | None, is_coalesced: bool | None = None,
) -> Tensor:  # fmt: skip
    """Holds the tensors that it is given: no memory of its own."""
    return coo(tuple(size), indices, values, bool(is_coalesced))


@operator("aten::_sparse_coo_tensor_with_dims")
def make_empty(
    cuda: Cuda, sparse_dim: int, dense_dim: int, size: list[int], dtype: torch.dtype | None
) -> Tensor:
    """No entries yet."""
    indices = cuda.new((sparse_dim, 0), torch.int64)
    return coo(
        tuple(size), indices, cuda.new((0, *size[sparse_dim:]), dtype or torch.get_default_dtype()), True
    )


@sparse("aten::clone", "aten::ones_like", "aten::empty_like")
def clone(cuda: Cuda, self: Tensor) -> Tensor:
    """The same pattern, all of it new."""
    return rebuilt(self, cuda.new_like)


@sparse("aten::zeros_like")
def zeros_like(cuda: Cuda, self: Tensor, dtype: torch.dtype | None) -> Tensor:
    indices, values = parts_of(self)
    none = cuda.new((0, *values.shape[1:]), dtype or values.dtype)
    return coo(tuple(self.shape), cuda.new((indices.shape[0], 0), torch.int64), none, True)


@sparse("aten::_to_copy")
def to_copy(cuda: Cuda, self: Tensor, dtype: torch.dtype | None) -> Tensor:
    """Values of another type, and a copy of the indices."""
    values = parts_of(self)[-1]
    wanted = dtype or values.dtype
    return rebuilt(self, lambda part: cuda.new(tuple(part.shape), wanted if part is values else part.dtype))


@sparse("aten::_coalesce")
def coalesce(cuda: Cuda, self: Tensor) -> Tensor:
    """Entries sorted by a flattened index, equal ones summed: new indices and values, at most as many.

    Flattened indices, their order and the offsets of the distinct ones are int64; the sort needs two once
    more.
    """
    indices, values = parts_of(self)
    count = values.shape[0]
    cuda.assume(
        f"the {count:,} entries of a sparse tensor at {cuda.where} are taken to be all different",
        "how many are left when equal ones are summed depends on data",
        low_bytes=-(nbytes(indices) + nbytes(values)),
    )
    flattened = cuda.new((indices.shape[0], count) if indices.shape[0] == 1 else (count,), torch.int64)
    working = [cuda.hold(count * INT64_BYTES) for _ in range(2)]
    cuda.scratch(2 * count * INT64_BYTES)
    new_values = cuda.new_like(values)
    new_indices = flattened if indices.shape[0] == 1 else cuda.new((indices.shape[0], count), torch.int64)
    for free in reversed(working):
        free()
    return coo(tuple(self.shape), new_indices, new_values, True)


@sparse("aten::_to_dense")
def to_dense(cuda: Cuda, self: Tensor, dtype: torch.dtype | None) -> Tensor:
    """Zeros, to which the entries are added."""
    dense = cuda.new(tuple(self.shape), dtype or self.dtype)
    cuda.scratch(_flattened_bytes(self))
    return dense


def _flattened_bytes(tensor: Tensor) -> int:
    """Where entries may be equal they are added by their flattened index."""
    if tensor.layout is not torch.sparse_coo or tensor.is_coalesced():
        return 0
    return tensor._values().shape[0] * INT64_BYTES


@sparse("aten::add.Tensor")
def add(cuda: Cuda, self: Tensor, other: Tensor) -> Tensor:
    """Dense and sparse is dense; two sparse ones are their entries one after the other."""
    if not is_sparse(self):
        out = cuda.new_like(self)
        cuda.scratch(_flattened_bytes(other))
        return out
    indices, values = parts_of(self)
    count = values.shape[0] + parts_of(other)[-1].shape[0]
    joined = cuda.new((indices.shape[0], count), torch.int64)
    return coo(tuple(self.shape), joined, cuda.new((count, *values.shape[1:]), values.dtype))


@sparse("aten::add_.Tensor")
def add_(cuda: Cuda, self: Tensor, other: Tensor) -> Tensor:
    """A dense tensor to which sparse entries are added; a sparse one would change its number of entries."""
    if is_sparse(self):
        raise cuda.unsupported(
            "a sparse tensor that grows in place is not simulated", "write a = a + b in place of a += b"
        )
    cuda.scratch(_flattened_bytes(other))
    return self


@sparse(
    "aten::mul.Tensor",
    "aten::mul.Scalar",
    "aten::div.Tensor",
    "aten::neg",
    "aten::sqrt",
    "aten::pow.Tensor_Scalar",
)
def scaled(cuda: Cuda, self: Tensor, other: object = None) -> Tensor:
    """Of a sparse tensor and a number: the same pattern, all of it new."""
    if not is_sparse(self) or is_sparse(other) or (isinstance(other, Tensor) and other.dim()):
        raise cuda.unsupported(
            "products of a sparse tensor and a tensor are not simulated",
            "multiply its values(), or to_dense()",
        )
    return rebuilt(self, cuda.new_like)


@sparse("aten::mul_.Tensor", "aten::mul_.Scalar", "aten::div_.Tensor", "aten::zero_", "aten::neg_")
def in_place(cuda: Cuda, self: Tensor) -> Tensor:
    return self


@sparse("aten::sparse_mask")
def sparse_mask(cuda: Cuda, self: Tensor, mask: Tensor) -> Tensor:
    """The values at the mask's places, with the mask's indices."""
    if is_sparse(self) or mask.layout is not torch.sparse_coo:
        return rebuilt(mask, cuda.new_like)
    indices, values = parts_of(mask)
    out = cuda.new((values.shape[0], *self.shape[mask.sparse_dim() :]), self.dtype)
    cuda.scratch(values.shape[0] * INT64_BYTES)
    return coo(tuple(mask.shape), indices, out, mask.is_coalesced())


@sparse("aten::sparse_sampled_addmm")
def sampled_addmm(cuda: Cuda, self: Tensor) -> Tensor:
    """The pattern of the first argument, all of it new (SparseBlas.cpp)."""
    return rebuilt(self, cuda.new_like)


@sparse("aten::t", "aten::transpose.int")
def transpose(cuda: Cuda, self: Tensor) -> Tensor:
    """A copy with its rows of indices exchanged; compressed rows become columns of the same parts."""
    size = tuple(reversed(self.shape))
    if self.layout is not torch.sparse_coo:
        return rebuilt(self, lambda part: part, size, TRANSPOSED[self.layout])
    indices, values = parts_of(self)
    return coo(size, cuda.new_like(indices), cuda.new_like(values))


@sparse("aten::mm", "aten::_sparse_mm")
def mm(cuda: Cuda, left: Tensor, right: Tensor, /) -> Tensor:
    return _product(cuda, left, right)


@sparse("aten::addmm", "aten::_sparse_addmm")
def addmm(cuda: Cuda, added: Tensor, left: Tensor, right: Tensor, /) -> Tensor:
    return _product(cuda, left, right)


def _product(cuda: Cuda, left: Tensor, right: Tensor) -> Tensor:
    """Sparse times dense by cuSPARSE: rows compressed to int32, a result by columns that is copied back.

    An uncoalesced matrix is coalesced first, for the length of the product. Dense times sparse exists for
    compressed matrices alone.
    """
    matrix, dense = (left, right) if is_sparse(left) else (right, left)
    if is_sparse(dense) or (matrix is right and matrix.layout is torch.sparse_coo):
        raise cuda.unsupported(
            "only a sparse matrix times a dense one is simulated",
            "write (right.t() @ left.t()).t(), or to_dense()",
        )
    if matrix.layout is torch.sparse_coo and not matrix.is_coalesced():
        matrix = coalesce(cuda, matrix)
    entries = parts_of(matrix)[-1].shape[0]
    out = cuda.new((left.shape[0], right.shape[1]), dense.dtype)
    compressed = (matrix.shape[0] + 1) * INT32_BYTES + 2 * entries * INT32_BYTES
    dense_copy = 0 if dense.is_contiguous() or dense.t().is_contiguous() else nbytes(dense)
    cuda.scratch(compressed, nbytes(out), dense_copy)
    return out


@operator("aten::_to_sparse", "aten::_to_sparse.sparse_dim")
def to_sparse(cuda: Cuda, self: Tensor, sparse_dim: int | None = None) -> Tensor:
    """As many entries as are not zero: at most all."""
    depth = self.dim() if sparse_dim is None else sparse_dim
    size = tuple(self.shape)
    count = prod(size[:depth])
    indices = cuda.new((depth, count), torch.int64)
    values = cuda.new((count, *size[depth:]), self.dtype)
    cuda.assume(
        f"no element of {'x'.join(map(str, size))} is zero where to_sparse() is called at {cuda.where}",
        "the simulation computes sizes, not values: a sparse tensor has at most as many entries",
        low_bytes=-(nbytes(indices) + nbytes(values)),
    )
    return coo(size, indices, values, True)
