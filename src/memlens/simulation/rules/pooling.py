"""Pooling and unfolding on CUDA. The output of `F.unfold` and `F.fold` begins as large as the input.

im2col_cuda and col2im_cuda (ATen/native/cuda/Im2Col.cu, Col2Im.cu) call `empty_like(input)` and then
`resize_`, which never gives memory back: the gradient of `unfold` keeps a storage as large as the columns.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

import torch

from memlens.simulation.rules.common import copy_unless_contiguous, nbytes
from memlens.simulation.rules.registry import fallback, operator

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


@fallback("aten::fractional_max_pool3d_backward")
def fractional_max_pool3d_backward(cuda: Cuda, grad_output: Tensor, self: Tensor, indices: Tensor) -> Tensor:
    """Zeros laid out as the input; gradient and indices are made contiguous (cuda/FractionalMaxPool3d.cu)."""
    gradient = cuda.new_like(self)
    cuda.scratch(copy_unless_contiguous(grad_output), copy_unless_contiguous(indices))
    return gradient
