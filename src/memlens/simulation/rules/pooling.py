"""Pooling on CUDA: gradients that have no meta kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlens.simulation.rules.common import copy_unless_contiguous
from memlens.simulation.rules.registry import fallback

if TYPE_CHECKING:
    from torch import Tensor

    from memlens.simulation.core.cuda import Cuda


@fallback("aten::fractional_max_pool3d_backward")
def fractional_max_pool3d_backward(cuda: Cuda, grad_output: Tensor, self: Tensor, indices: Tensor) -> Tensor:
    """Zeros laid out as the input; gradient and indices are made contiguous (cuda/FractionalMaxPool3d.cu)."""
    gradient = cuda.new_like(self)
    cuda.scratch(copy_unless_contiguous(grad_output), copy_unless_contiguous(indices))
    return gradient
