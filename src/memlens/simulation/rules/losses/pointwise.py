"""Losses on CUDA whose kernels take more than their result, and gradients of losses without a meta kernel.

A structured loss (mse_loss, smooth_l1_loss; ATen/native/BinaryOps.cpp) gets its output as large as the input
before it knows of the reduction; then it is resized to one number, and its storage stays. The elements go to
a second tensor of that size, which is reduced. torch's meta kernels, written in Python, show neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from memlens.simulation.rules.common import Sizes, copy_unless_contiguous, nbytes
from memlens.simulation.rules.reductions.operators import reduction_bytes
from memlens.simulation.rules.registry import fallback, operator, scratch

if TYPE_CHECKING:
    from memlens.simulation.core.cuda import Cuda

_NONE = 0  # at::Reduction


def _number_in(cuda: Cuda, full: Tensor) -> Tensor:
    """A number that keeps the storage of `full`."""
    return full.as_strided((), (), 0)


@operator("aten::mse_loss", "aten::smooth_l1_loss", on_device=True)
def structured_loss(cuda: Cuda, self: Tensor, target: Tensor, reduction: int) -> Tensor:
    """The result in a storage of the input's size, and meanwhile the elements in another (BinaryOps.cpp)."""
    other = torch.empty_strided(target.shape, target.stride(), dtype=target.dtype, device="meta")
    full = cuda.adopt(torch.sub(self, other))
    if reduction == _NONE:
        return full
    cuda.scratch(nbytes(full), *reduction_bytes(cuda, full, None, full.dtype))
    return _number_in(cuda, full)


@operator("aten::binary_cross_entropy", on_device=True)
def binary_cross_entropy(cuda: Cuda, self: Tensor, reduction: int) -> Tensor:
    """The elements' tensor is resized to the one number that it was reduced to (cuda/Loss.cu)."""
    full = cuda.new_like(self)
    if reduction == _NONE:
        return full
    cuda.scratch(full.dtype.itemsize, *reduction_bytes(cuda, full, None, full.dtype))
    return _number_in(cuda, full)


@scratch(
    "aten::huber_loss", why="the elements are a tensor before they are reduced (BinaryOps.cpp, Loss.cpp)"
)
def huber_loss(cuda: Cuda, self: Tensor, target: Tensor, reduction: int) -> Sizes:
    if reduction == _NONE:
        return ()
    shape = torch.broadcast_shapes(self.shape, target.shape)
    full = torch.empty(shape, dtype=torch.promote_types(self.dtype, target.dtype), device="meta")
    return (nbytes(full), *reduction_bytes(cuda, full, None, full.dtype))


@fallback("aten::multi_margin_loss_backward")
def multi_margin_loss_backward(
    cuda: Cuda, grad_output: Tensor, self: Tensor, target: Tensor, weight: Tensor | None
) -> Tensor:
    """One contiguous tensor of the input's shape (cuda/MultiMarginLoss.cu)."""
    tensors = [self, target, grad_output, *([] if weight is None else [weight])]
    return _gradient(cuda, self, tensors)


@operator("aten::multilabel_margin_loss_forward", on_device=True)
def multilabel_margin_loss(cuda: Cuda, self: Tensor, target: Tensor, reduction: int) -> tuple[Tensor, Tensor]:
    """One number per row, which are then summed; and which classes are meant, in the input's type."""
    rows = tuple(self.shape[:-1]) if reduction == _NONE else ()
    is_target = cuda.new(tuple(target.shape), self.dtype)
    out = cuda.new(rows, self.dtype)
    summed = 0 if reduction == _NONE else self.shape[:-1].numel() * self.dtype.itemsize
    cuda.scratch(copy_unless_contiguous(self), copy_unless_contiguous(target), summed)
    return out, is_target


@fallback("aten::multilabel_margin_loss_backward")
def multilabel_margin_loss_backward(
    cuda: Cuda, grad_output: Tensor, self: Tensor, target: Tensor, is_target: Tensor
) -> Tensor:
    """One contiguous tensor of the input's shape (cuda/MultiLabelMarginCriterion.cu)."""
    return _gradient(cuda, self, [self, target, is_target, grad_output])


def _gradient(cuda: Cuda, source: Tensor, copied: list[Tensor]) -> Tensor:
    gradient = cuda.new(tuple(source.shape), source.dtype)
    cuda.scratch(*(copy_unless_contiguous(tensor) for tensor in copied))
    return gradient
