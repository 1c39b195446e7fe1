"""`F.unfold` and `F.fold` on CUDA: their output begins as large as the input and is resized.

im2col_cuda and col2im_cuda (ATen/native/cuda/Im2Col.cu, Col2Im.cu) call `empty_like(input)` and then
`resize_`, which never gives memory back: the gradient of `unfold` keeps a storage as large as the columns.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import torch

from memlens.simulation.rules.common import copy_unless_contiguous, nbytes
from memlens.simulation.rules.registry import operator

if TYPE_CHECKING:
    from torch import Tensor

    from memlens.simulation.core.cuda import Cuda


@operator("aten::im2col", on_device=True)
def im2col(
    cuda: Cuda,
    self: Tensor,
    kernel_size: list[int],
    dilation: list[int],
    padding: list[int],
    stride: list[int],
) -> Tensor:
    made = torch.ops.aten.im2col.default(self, kernel_size, dilation, padding, stride)
    return _resized(cuda, self, tuple(made.shape))


@operator("aten::col2im", on_device=True)
def col2im(
    cuda: Cuda, self: Tensor, output_size: list[int], kernel_size: list[int], dilation: list[int],
    padding: list[int], stride: list[int],
) -> Tensor:  # fmt: skip
    made = torch.ops.aten.col2im.default(self, output_size, kernel_size, dilation, padding, stride)
    return _resized(cuda, self, tuple(made.shape))


def _resized(cuda: Cuda, source: Tensor, shape: tuple[int, ...]) -> Tensor:
    """An `empty_like(source)` after `resize_(shape)`: its own storage, or a larger one beside it."""
    if prod(shape) > source.numel():
        free = cuda.hold(nbytes(source))
        out = cuda.new(shape, source.dtype)
        free()
    else:
        strides = torch.empty(shape, device="meta").stride()
        out = cuda.new((source.numel(),), source.dtype).as_strided(shape, strides)
    cuda.scratch(copy_unless_contiguous(source))
    return out
