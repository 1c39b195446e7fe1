"""Sorts and scans on CUDA.

Rows of up to 4,096 elements are sorted in place in the outputs. Longer ones go to cub, in one of three ways
(ATen/native/cuda/SortStable.cu): row by row (one row, or rows of 1,000,000 and more), all rows at once with
the row's number in the key (fewer than 128 rows), or cub's segmented sort. cub's own temporary storage is an
estimate within 5 % (`cub`).
"""

from __future__ import annotations

from math import ceil, log, log2
from typing import TYPE_CHECKING, Any

from torch import Tensor

from memlens.simulation.rules import cub
from memlens.simulation.rules.indexing import copy_unless_contiguous
from memlens.simulation.rules.reductions.operators import argument
from memlens.simulation.rules.registry import scratch

if TYPE_CHECKING:
    from memlens.simulation.core.session import Simulation

Steps = list[tuple[int, ...]]
SHORT_ROW = 4_096  # should_use_small_sort in ATen/native/cuda/Sort.h
LONG_ROW = 1_000_000
FEW_ROWS = 128
INT64 = 8


def sort_scratch(rows: int, length: int, key_bytes: int) -> tuple[int, ...]:
    """Bytes beside values and indices for sorting `rows` dense rows of `length`."""
    if length <= SHORT_ROW:
        return ()
    items = rows * length
    if rows == 1 or length >= LONG_ROW:
        return (length * INT64, cub.radix_sort(length, key_bytes, INT64))
    if rows < FEW_ROWS:
        pair = items * INT64  # the index and the row, 4 bytes each
        return (pair, pair, items * key_bytes, cub.radix_sort(items, key_bytes, INT64))
    return (items * INT64, items * (key_bytes + INT64))


def _sorted_along(source: Tensor, dim: int) -> tuple[int, ...]:
    length = source.shape[dim] if source.dim() else 1
    rows = source.numel() // max(length, 1)
    key = source.dtype.itemsize
    found = sort_scratch(rows, length, key)
    last = not source.dim() or dim % source.dim() == source.dim() - 1
    if found and not (last and source.is_contiguous()):
        return (source.numel() * key, source.numel() * key, source.numel() * INT64, *found)
    return found


@scratch("aten::sort", "aten::sort.stable", why="rows over 4,096 elements go to cub")
def sort(sim: Simulation, args: Any, kwargs: Any, out: Any) -> tuple[int, ...]:
    dim = argument(args, kwargs, 1, "dim")
    return _sorted_along(args[0], -1 if dim is None else dim)


@scratch("aten::median", "aten::kthvalue", "aten::median.dim", why="selection works on a contiguous copy")
def select(sim: Simulation, args: Any, kwargs: Any, out: Any) -> int:
    """`median()` of everything sorts a copy with radix selection; no more than the copy."""
    return copy_unless_contiguous(args[0])


@scratch("aten::topk", why="the input is made contiguous; more than 4,096 results are sorted")
def topk(sim: Simulation, args: Any, kwargs: Any, out: Any) -> tuple[int, ...]:
    values = out[0]
    copied = copy_unless_contiguous(args[0])
    k = args[1]
    if k <= SHORT_ROW:
        return (copied,)
    rows = values.numel() // k
    again = values.numel() * (values.dtype.itemsize + INT64)
    return (copied, again, *sort_scratch(rows, k, values.dtype.itemsize))


@scratch("aten::cumsum", "aten::cumprod", "aten::logcumsumexp", why="a scan of one row is cub's, of many not")
def scan(sim: Simulation, args: Any, kwargs: Any, out: Tensor) -> tuple[int, ...]:
    source, dim = args[0], args[1]
    cast = source.numel() * out.dtype.itemsize if source.dtype is not out.dtype else 0
    copied = cast or copy_unless_contiguous(source)
    one_row = source.dim() == 0 or source.shape[dim] == source.numel()
    return (copied, cub.scan(source.numel(), out.dtype.itemsize)) if one_row else (copied,)


@scratch("aten::randperm", "aten::randperm.generator", why="random keys are sorted (Randperm.cu)")
def randperm(sim: Simulation, args: Any, kwargs: Any, out: Tensor) -> tuple[int, ...]:
    """Keys, sorted keys and a range. Keys have the bits that keep collisions rare: 32 up to 30,000 items."""
    items, word = out.numel(), out.dtype.itemsize
    if not items:
        return ()
    bits = ceil(log2(items - (6 * items * items + 1) / (12 * log(0.9))))
    key = 4 if bits <= 32 else 8
    return (items * key, items * key, items * word, cub.radix_sort(items, key, word))


@scratch("aten::multinomial", why="random weights, or the normalised distribution and its prefix sum")
def multinomial(sim: Simulation, args: Any, kwargs: Any, out: Tensor) -> tuple[int, ...]:
    """Without replacement one draw of the input's size is divided by it (ATen/native/Distributions.cpp)."""
    size = args[0].numel() * args[0].dtype.itemsize
    draws, replaced = args[1], argument(args, kwargs, 2, "replacement")
    return (size, size) if replaced and draws > 1 else (size,)
