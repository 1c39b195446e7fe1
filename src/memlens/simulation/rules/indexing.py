"""Gradients of lookups on CUDA: `x[indices]`, embeddings, embedding bags.

`index_put_(..., accumulate=True)` (index_put_with_sort_kernel in ATen/native/cuda/Indexing.cu) sorts: five
int64 vectors as long as the indices, plus a copy of the values where they are expanded or not contiguous.
`embedding_dense_backward` (Embedding.cu) works without scratch up to 3,072 indices; above it sorts and sums
the rows of every index in partial segments of 10, in float32 (EmbeddingBackwardKernel.cu). How many
different indices there are is not known here: the largest number counts, as it does in PyTorch itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from memlens.simulation.rules import cub
from memlens.simulation.rules.common import INT64_BYTES, Sizes, Steps, copy_unless_contiguous
from memlens.simulation.rules.registry import scratch

if TYPE_CHECKING:
    from memlens.simulation.core.cuda import Cuda

FEW_INDICES = 3_072  # Embedding.cu: up to here one kernel adds every row
ROWS_PER_THREAD = 10  # EmbeddingBackwardKernel.cu, NROWS_PER_THREAD
_MAX_MODE = 2  # of embedding bags: atomics into the gradient


@scratch(
    "aten::index_put_",
    "aten::index_put",
    "aten::_index_put_impl_",
    "aten::_unsafe_index_put",
    why="accumulating sorts the indices first; without accumulate it is one kernel",
)
def index_put(
    cuda: Cuda,
    self: Tensor,
    indices: list[Tensor | None],
    values: Tensor,
    accumulate: bool,
    unsafe: bool = False,
) -> Steps:
    tensors = [index for index in indices if index is not None]
    if not accumulate or not tensors or tensors[0].dtype is torch.bool:
        return []
    shape = torch.broadcast_shapes(*(index.shape for index in tensors))
    number = shape.numel()
    vector = number * INT64_BYTES
    rows = self.numel()
    for size, index in zip(self.shape, indices, strict=False):
        rows //= max(size, 1) if index is not None else 1
    wanted = number * rows
    expanded = wanted * values.dtype.itemsize
    copied = 0 if values.numel() == wanted and values.is_contiguous() else expanded
    checks: Steps = [] if unsafe else [(INT64_BYTES, INT64_BYTES)]  # the smallest and the largest index
    sort = (vector, vector, vector, vector, cub.radix_sort(number, INT64_BYTES, INT64_BYTES))
    return [*checks, (vector,), (copied, copy_unless_contiguous(self), *sort)]


@scratch("aten::embedding_dense_backward", why="more than 3,072 indices are sorted and summed in segments")
def embedding_backward(
    cuda: Cuda, grad_output: Tensor, indices: Tensor, num_weights: int, scale_grad_by_freq: bool
) -> Steps:
    copies = (copy_unless_contiguous(grad_output), copy_unless_contiguous(indices))
    number, word = indices.numel(), indices.dtype.itemsize
    if number <= FEW_INDICES and not scale_grad_by_freq:
        return [copies]
    vector = number * word
    held = (*copies, vector, vector) + ((vector,) if scale_grad_by_freq else ())
    sort = (*held, vector, cub.radix_sort(number, word, word))
    return [sort, (*held, *segments(grad_output, number, word, num_weights))]


def segments(grad: Tensor, number: int, word: int, rows: int) -> Sizes:
    """What embedding_backward_cuda_kernel keeps after the sort, without the gradient itself.

    Since torch 2.11 a table with few rows or narrow rows is added to with atomics instead, in a float32
    copy of the whole gradient where that is of 16 bits; there the smaller of the two ways is wrong by less
    than the segments' bytes.
    """
    width = grad.shape[-1]
    most = min(number, rows)
    parts = number // ROWS_PER_THREAD + most
    wide = 8 if grad.dtype is torch.float64 else 4
    vectors = (number * word, INT64_BYTES, most * word, most * word, INT64_BYTES, parts * word)
    return (*vectors, parts * width * wide)


@scratch("aten::_embedding_bag_dense_backward", why="bags are sorted and summed like embeddings")
def embedding_bag_backward(cuda: Cuda, grad: Tensor, indices: Tensor, num_weights: int, mode: int) -> Steps:
    if mode == _MAX_MODE:
        return []
    number, word = indices.numel(), indices.dtype.itemsize
    vector = number * word
    held = (copy_unless_contiguous(grad), vector, vector)
    sort = (*held, vector, cub.radix_sort(number, word, word))
    return [sort, (*held, *segments(grad, number, word, num_weights))]


@scratch("aten::index_add_", "aten::index_add", why="an index that is not contiguous is copied (Indexing.cu)")
def index_add(cuda: Cuda, index: Tensor) -> int:
    return copy_unless_contiguous(index)


@scratch(
    "aten::masked_scatter_",
    why="each element's place in the source: an int64 sum over the mask (MaskedScatter)",
)
def masked_scatter(cuda: Cuda, self: Tensor, mask: Tensor, source: Tensor) -> Sizes:
    """masked_scatter__cuda in ATen/native/cuda/IndexKernel.cpp; the scan is CUB's."""
    broadcast = 0 if mask.shape == self.shape else self.numel()
    return (broadcast, self.numel() * INT64_BYTES, copy_unless_contiguous(source))


@scratch(
    "aten::isin.Tensor_Tensor", why="few candidates are compared with all, many are sorted (TensorCompare)"
)
def isin(cuda: Cuda, elements: Tensor, test_elements: Tensor, assume_unique: bool) -> Sizes:
    """isin_default_kernel_gpu compares all pairs; else isin_sorting's tensors, taken to live together."""
    number, candidates = elements.numel(), test_elements.numel()
    if candidates < 10.0 * number**0.145:
        return (number * candidates, number)
    both, word = number + candidates, elements.dtype.itemsize
    different = 0 if assume_unique else number * (word + INT64_BYTES) + candidates * word
    return (different, both * word, both * word, both * INT64_BYTES, both, both)


@scratch("aten::unfold_backward", why="the indices along the unfolded dimension (UnfoldBackward.h)")
def unfold_backward(cuda: Cuda, input_sizes: list[int], dim: int) -> int:
    return (input_sizes[dim] if input_sizes else 1) * INT64_BYTES
