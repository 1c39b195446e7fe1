"""uint8 that CUDA takes as classes or as a mask, and torch's meta kernels refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from memlens.simulation.rules.registry import fallback

if TYPE_CHECKING:
    from memlens.simulation.core.cuda import Cuda

_aten = torch.ops.aten


def _as(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return torch.empty_like(tensor, dtype=dtype, device="meta") if tensor.dtype is torch.uint8 else tensor


@fallback("aten::nll_loss_forward")
def nll_loss(
    cuda: Cuda, self: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """Byte classes are read as they are (cuda/Loss.cu)."""
    loss, total = _aten.nll_loss_forward(self, _as(target, torch.int64), weight, reduction, ignore_index)
    return cuda.adopt(loss), cuda.adopt(total)


@fallback("aten::nll_loss_backward")
def nll_loss_backward(
    cuda: Cuda, grad_output: Tensor, self: Tensor, target: Tensor, weight: Tensor | None, reduction: int,
    ignore_index: int, total_weight: Tensor,
) -> Tensor:  # fmt: skip
    classes = _as(target, torch.int64)
    return cuda.adopt(
        _aten.nll_loss_backward(grad_output, self, classes, weight, reduction, ignore_index, total_weight)
    )


@fallback("aten::where.self")
def where(cuda: Cuda, condition: Tensor, self: Tensor, other: Tensor) -> Tensor:
    """A byte mask becomes a boolean one for the call (TensorCompare.cpp)."""
    out = cuda.adopt(torch.where(_as(condition, torch.bool), self, other))
    cuda.scratch(condition.numel())
    return out
