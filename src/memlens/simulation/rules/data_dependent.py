"""Operators whose output's size depends on data: the size where the data is known, else a stated bound.

`@fallback` rules are asked only after torch's own meta kernel has given up. A bound is the largest size there
can be: everything kept. Where there is none, the operator is refused by name and line.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from memlens.simulation.rules.common import INT64_BYTES, copy_unless_contiguous, nbytes
from memlens.simulation.rules.registry import fallback, operator

if TYPE_CHECKING:
    from memlens.simulation.core.cuda import Cuda

_aten = torch.ops.aten


def _bound(cuda: Cuda, count: int, too_much_bytes: int) -> int:
    """Assume that all `count` are kept; `too_much_bytes` is what that may be too much."""
    cuda.assume(
        f"{cuda.operator} at {cuda.where} is taken to keep all {count:,} elements",
        "how many it keeps depends on data, which is not computed; fewer need less",
        low_bytes=-too_much_bytes,
    )
    return count


def _count_nonzeros(cuda: Cuda, mask: Tensor) -> int:
    """How many elements are not zero: counted where the data is known, else all of them, as an assumption."""
    real = cuda.known(mask)
    if real is not None:
        return int(torch.count_nonzero(real))
    return _bound(cuda, mask.numel(), mask.numel() * mask.dim() * INT64_BYTES)


@fallback("aten::nonzero")
def nonzero(cuda: Cuda, self: Tensor) -> Tensor:
    """One row of indices per element that is not zero, laid out by dimension (cuda/Nonzero.cu)."""
    return cuda.new((self.dim(), _count_nonzeros(cuda, self)), torch.int64).t()


@fallback("aten::masked_select")
def masked_select(cuda: Cuda, self: Tensor, mask: Tensor) -> Tensor:
    """The selected elements; CUDA indexes with the mask, so its indices live meanwhile."""
    shape = torch.broadcast_shapes(self.shape, mask.shape)
    count = math.prod(shape)
    if mask.shape == shape:
        count = _count_nonzeros(cuda, mask)
    else:
        _bound(cuda, count, count * self.element_size())
    cuda.scratch(count * len(shape) * INT64_BYTES)
    return cuda.new((count,), self.dtype)


@fallback("aten::index.Tensor")
def index(cuda: Cuda, self: Tensor, indices: list[Tensor | None]) -> Tensor:
    """Boolean masks become the indices of their true elements (`expandTensors`), one tensor per dimension."""
    index_bytes = 0
    expanded: list[Tensor | None] = []
    for item in indices:
        if item is None or item.dtype not in (torch.bool, torch.uint8):
            expanded.append(None if item is None else item if item.is_meta else item.to("meta"))
            continue
        count = _count_nonzeros(cuda, item)
        index_bytes += count * item.dim() * INT64_BYTES
        expanded += [torch.empty(count, dtype=torch.int64, device="meta")] * item.dim()
    shape = tuple(_aten.index.Tensor(self, expanded).shape)
    cuda.scratch(index_bytes)
    return cuda.new(shape, self.dtype)


@fallback("aten::_unique2")
def unique2(cuda: Cuda, self: Tensor, return_inverse: bool, return_counts: bool) -> tuple[Tensor, ...]:
    """At most every element once; CUDA sorts, and the inverse has the input's shape."""
    real = cuda.known(self)
    number = None if real is None else len(real.unique())
    return _unique(cuda, self, number, return_inverse, return_counts)


@fallback("aten::_unique")
def unique(cuda: Cuda, self: Tensor, return_inverse: bool) -> tuple[Tensor, ...]:
    """As `_unique2`, without counts."""
    return unique2(cuda, self, return_inverse, False)[:2]


@fallback("aten::unique_consecutive")
def unique_consecutive(
    cuda: Cuda, self: Tensor, return_inverse: bool, return_counts: bool, dim: int | None
) -> tuple[Tensor, ...]:
    """At most every element, or every slice along `dim`."""
    if dim is not None:
        return unique_slices(cuda, self, dim, return_inverse, return_counts)
    real = cuda.known(self)
    number = None if real is None else len(real.unique_consecutive())
    return _unique(cuda, self, number, return_inverse, return_counts)


@fallback("aten::unique_dim", "aten::unique_dim_consecutive")
def unique_slices(
    cuda: Cuda, self: Tensor, dim: int, return_inverse: bool, return_counts: bool
) -> tuple[Tensor, ...]:
    """At most every slice along `dim`."""
    length = self.size(dim)
    _bound(cuda, length, nbytes(self))
    return (
        cuda.new(tuple(self.shape), self.dtype),
        cuda.new((length if return_inverse else 0,), torch.int64),
        cuda.new((length if return_counts else 0,), torch.int64),
    )


def _unique(
    cuda: Cuda, source: Tensor, number: int | None, inverse: bool, counts: bool
) -> tuple[Tensor, ...]:
    """`number` of different elements; None where the data is not known."""
    if number is None:
        count = source.numel()
        number = _bound(cuda, count, count * (source.element_size() + INT64_BYTES * counts))
    return (
        cuda.new((number,), source.dtype),
        cuda.new(tuple(source.shape) if inverse else (0,), torch.int64),
        cuda.new((number if counts else 0,), torch.int64),
    )


@fallback("aten::bincount")
def bincount(cuda: Cuda, self: Tensor, weights: Tensor | None, minlength: int) -> Tensor:
    """As long as the largest value plus one: known with the data, or by `minlength`, else not at all.

    The extrema are looked at first, in a contiguous copy (SummaryOps.cu).
    """
    cuda.scratch(copy_unless_contiguous(self), INT64_BYTES, INT64_BYTES)
    bins = minlength
    real = cuda.known(self)
    if real is not None:
        bins = max(bins, int(real.max()) + 1 if real.numel() else 0)
    elif bins:
        cuda.assume(f"bincount at {cuda.where} is taken to have {bins:,} bins", "as many as its minlength")
    else:
        raise cuda.unsupported(
            "its length is the largest value in its input, which is not computed",
            "give it minlength= with the number of bins",
        )
    dtype = torch.int64 if weights is None else torch.float64
    if weights is not None and weights.dtype is torch.float32:
        dtype = torch.float32
    return cuda.new((bins,), dtype)


@operator("aten::repeat_interleave.Tensor")
def repeat_interleave(cuda: Cuda, repeats: Tensor, output_size: int | None) -> Tensor:
    """The indices to repeat: as many as the repeats add up to, or as the caller says."""
    if not repeats.is_meta:
        return _aten.repeat_interleave.Tensor(repeats, output_size=output_size)
    real = cuda.known(repeats)
    if output_size is None and real is not None:
        output_size = int(real.sum())
    if output_size is None:
        raise cuda.unsupported(
            "its length is the sum of the repeats, which is not computed",
            "give it output_size= with the length, or the repeats from the host",
        )
    return cuda.new((output_size,), repeats.dtype)


@fallback("torchvision::nms")
def nms(cuda: Cuda, dets: Tensor) -> Tensor:
    """Which boxes stay: at most all."""
    boxes = dets.size(0)
    return cuda.new((_bound(cuda, boxes, boxes * INT64_BYTES),), torch.int64)


@operator("aten::allclose")
def allclose(cuda: Cuda, self: Tensor, other: Tensor, rtol: float, atol: float, equal_nan: bool) -> bool:
    """Compared where the data is known, else the stand-ins are."""
    return torch.allclose(cuda.read(self), cuda.read(other), rtol, atol, equal_nan)
