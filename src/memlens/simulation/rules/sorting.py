"""Sorts and scans on CUDA.

Rows of up to 4,096 elements are sorted in place in the outputs. Longer ones go to cub, in one of three ways
(ATen/native/cuda/SortStable.cu): row by row (one row, or rows of 1,000,000 and more), all rows at once with
the row's number in the key (fewer than 128 rows), or cub's segmented sort. cub's own temporary storage is an
estimate within 5 % (`cub`).
"""

from __future__ import annotations

from math import ceil, log, log2
from typing import TYPE_CHECKING

from torch import Tensor

from memlens.simulation.rules import cub
from memlens.simulation.rules.common import INT64_BYTES, Sizes, copy_unless_contiguous, nbytes
from memlens.simulation.rules.registry import scratch

if TYPE_CHECKING:
    from memlens.simulation.core.cuda import Cuda

SHORT_ROW = 4_096  # should_use_small_sort in ATen/native/cuda/Sort.h
LONG_ROW = 1_000_000
FEW_ROWS = 128


def sort_scratch(rows: int, length: int, key_bytes: int) -> Sizes:
    """Bytes beside values and indices for sorting `rows` dense rows of `length`."""
    if length <= SHORT_ROW:
        return ()
    items = rows * length
    if rows == 1 or length >= LONG_ROW:
        return (length * INT64_BYTES, cub.radix_sort(length, key_bytes, INT64_BYTES))
    if rows < FEW_ROWS:
        pair = items * INT64_BYTES  # the index and the row, 4 bytes each
        return (pair, pair, items * key_bytes, cub.radix_sort(items, key_bytes, INT64_BYTES))
    return (items * INT64_BYTES, items * (key_bytes + INT64_BYTES))


def _sorted_along(source: Tensor, dim: int) -> Sizes:
    length = source.shape[dim] if source.dim() else 1
    rows = source.numel() // max(length, 1)
    key = source.dtype.itemsize
    sizes = sort_scratch(rows, length, key)
    last = not source.dim() or dim % source.dim() == source.dim() - 1
    if sizes and not (last and source.is_contiguous()):
        return (source.numel() * key, source.numel() * key, source.numel() * INT64_BYTES, *sizes)
    return sizes


@scratch("aten::sort", "aten::sort.stable", why="rows over 4,096 elements go to cub")
def sort(cuda: Cuda, self: Tensor, dim: int) -> Sizes:
    return _sorted_along(self, dim)


@scratch("aten::median", "aten::kthvalue", "aten::median.dim", why="selection works on a contiguous copy")
def select(cuda: Cuda, self: Tensor) -> int:
    """Radix selection on a contiguous copy; no other scratch memory."""
    return copy_unless_contiguous(self)


@scratch("aten::topk", why="the input is made contiguous; more than 4,096 results are sorted")
def topk(cuda: Cuda, self: Tensor, k: int, outputs: tuple[Tensor, Tensor]) -> Sizes:
    values = outputs[0]
    copied = copy_unless_contiguous(self)
    if k <= SHORT_ROW:
        return (copied,)
    rows = values.numel() // k
    again = values.numel() * (values.dtype.itemsize + INT64_BYTES)
    return (copied, again, *sort_scratch(rows, k, values.dtype.itemsize))


@scratch("aten::cumsum", "aten::cumprod", "aten::logcumsumexp", why="a scan of one row is cub's, of many not")
def scan(cuda: Cuda, self: Tensor, dim: int, outputs: Tensor) -> Sizes:
    item_bytes = outputs.dtype.itemsize
    cast = self.numel() * item_bytes if self.dtype is not outputs.dtype else 0
    copied = cast or copy_unless_contiguous(self)
    one_row = self.dim() == 0 or self.shape[dim] == self.numel()
    return (copied, cub.scan(self.numel(), item_bytes)) if one_row else (copied,)


@scratch("aten::randperm", "aten::randperm.generator", why="random keys are sorted (Randperm.cu)")
def randperm(cuda: Cuda, n: int, outputs: Tensor) -> Sizes:
    """Keys, sorted keys and a range. Keys have the bits that keep collisions rare: 32 up to 30,000 items."""
    if not n:
        return ()
    word = outputs.dtype.itemsize
    bits = ceil(log2(n - (6 * n * n + 1) / (12 * log(0.9))))
    key = 4 if bits <= 32 else 8
    return (n * key, n * key, n * word, cub.radix_sort(n, key, word))


@scratch("aten::multinomial", why="random weights, or the normalised distribution and its prefix sum")
def multinomial(cuda: Cuda, self: Tensor, num_samples: int, replacement: bool) -> Sizes:
    """Without replacement one draw of the input's size is divided by it (ATen/native/Distributions.cpp)."""
    size = nbytes(self)
    return (size, size) if replacement and num_samples > 1 else (size,)
