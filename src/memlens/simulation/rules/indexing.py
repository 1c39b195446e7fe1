"""Gradients of lookups on CUDA: `x[indices]`, embeddings, embedding bags.

`index_put_(..., accumulate=True)` (index_put_with_sort_kernel in ATen/native/cuda/Indexing.cu) sorts: five
int64 vectors as long as the indices, plus a copy of the values where they are expanded or not contiguous.
`embedding_dense_backward` (Embedding.cu) works without scratch up to 3,072 indices; above it sorts and sums
the rows of every index in partial segments of 10, in float32 (EmbeddingBackwardKernel.cu). How many
different indices there are is not known here: the largest number counts, as it does in PyTorch itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memlens.simulation.rules import cub
from memlens.simulation.rules.reductions.operators import argument
from memlens.simulation.rules.registry import scratch

if TYPE_CHECKING:
    from memlens.simulation.core.session import Simulation

Steps = list[tuple[int, ...]]
INT64 = 8
FEW_INDICES = 3_072  # Embedding.cu: up to here one kernel adds every row
ROWS_PER_THREAD = 10  # EmbeddingBackwardKernel.cu, NROWS_PER_THREAD


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.dtype.itemsize


def copy_unless_contiguous(tensor: Tensor) -> int:
    """Bytes of `tensor.contiguous()`, 0 where it is the tensor itself."""
    return 0 if tensor.is_contiguous() else _bytes(tensor)


@scratch(
    "aten::index_put_",
    "aten::index_put",
    "aten::_index_put_impl_",
    "aten::_unsafe_index_put",
    why="accumulating sorts the indices first; without accumulate it is one kernel",
)
def index_put(sim: Simulation, args: Any, kwargs: Any, out: Any) -> Steps:
    target, indices, values = args[0], args[1], args[2]
    tensors = [index for index in indices if index is not None]
    if not argument(args, kwargs, 3, "accumulate") or not tensors or tensors[0].dtype is torch.bool:
        return []
    shape = torch.broadcast_shapes(*(index.shape for index in tensors))
    number = shape.numel()
    vector = number * INT64
    rows = target.numel()
    for size, index in zip(target.shape, indices, strict=False):
        rows //= max(size, 1) if index is not None else 1
    wanted = number * rows
    expanded = wanted * values.dtype.itemsize
    copied = 0 if values.numel() == wanted and values.is_contiguous() else expanded
    checks = [] if len(args) > 4 and args[4] else [(INT64, INT64)]  # smallest and largest index, looked at
    sort = (vector, vector, vector, vector, cub.radix_sort(number, INT64, INT64))
    return [*checks, (vector,), (copied, copy_unless_contiguous(target), *sort)]


@scratch("aten::embedding_dense_backward", why="more than 3,072 indices are sorted and summed in segments")
def embedding(sim: Simulation, args: Any, kwargs: Any, out: Tensor) -> Steps:
    """(grad, indices, num_weights, padding_idx, scale_grad_by_freq)."""
    grad, indices, rows, by_frequency = args[0], args[1], args[2], bool(args[4])
    copies = (copy_unless_contiguous(grad), copy_unless_contiguous(indices))
    number, word = indices.numel(), indices.dtype.itemsize
    if number <= FEW_INDICES and not by_frequency:
        return [copies]
    vector = number * word
    held = (*copies, vector, vector) + ((vector,) if by_frequency else ())
    sort = (*held, vector, cub.radix_sort(number, word, word))
    return [sort, (*held, *segments(sim, grad, number, word, rows, by_frequency))]


def segments(
    sim: Simulation, grad: Tensor, number: int, word: int, rows: int, by_bag: bool = False
) -> tuple[int, ...]:
    """What embedding_backward_cuda_kernel keeps after the sort, without the gradient itself.

    Since torch 2.11 a table with few rows or narrow rows is added to with atomics instead, in a float32
    copy of the whole gradient where that is of 16 bits; there the smaller of the two ways is wrong by less
    than the segments' bytes.
    """
    width = grad.shape[-1]
    most = min(number, rows)
    parts = number // ROWS_PER_THREAD + most
    wide = 8 if grad.dtype is torch.float64 else 4
    vectors = (number * word, INT64, most * word, most * word, INT64, parts * word)
    return (*vectors, parts * width * wide)


@scratch("aten::_embedding_bag_dense_backward", why="bags are sorted and summed like embeddings")
def embedding_bag(sim: Simulation, args: Any, kwargs: Any, out: Tensor) -> Steps:
    """(grad, indices, offset2bag, bag_size, max_indices, num_weights, scale_grad_by_freq, mode, ...)."""
    grad, indices, rows, mode = args[0], args[1], args[5], args[7]
    if mode == 2:  # max: atomics into the gradient
        return []
    number, word = indices.numel(), indices.dtype.itemsize
    vector = number * word
    held = (copy_unless_contiguous(grad), vector, vector)
    sort = (*held, vector, cub.radix_sort(number, word, word))
    return [sort, (*held, *segments(sim, grad, number, word, rows))]


@scratch("aten::bincount", optional=True, why="the extrema are looked at first (SummaryOps.cu)")
def bincount(sim: Simulation, args: Any, kwargs: Any, out: Tensor) -> Steps:
    return [(copy_unless_contiguous(args[0]), INT64, INT64)]


@scratch("aten::index_add_", "aten::index_add", why="an index that is not contiguous is copied (Indexing.cu)")
def index_add(sim: Simulation, args: Any, kwargs: Any, out: Any) -> Steps:
    return [(copy_unless_contiguous(args[2]),)]
