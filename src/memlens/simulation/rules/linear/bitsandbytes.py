"""bitsandbytes: what its CUDA kernels allocate that its shape functions do not say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from memlens.simulation.rules.registry import library_operator

if TYPE_CHECKING:
    from memlens.simulation.core.cuda import Cuda

# rows that the fused kernel takes on every card (`_GEMM_4BIT_CUSTOM_FLOOR_M`, bitsandbytes 0.50,
# backends/cuda/ops.py); from there to 1,536 rows it depends on the card and the shape, and we take the larger
_FUSED_ROWS = 4


@library_operator("bitsandbytes::gemm_4bit")
def gemm_4bit(cuda: Cuda, A: Tensor, shapeB: list[int], absmax_8bit: Tensor | None = None) -> Tensor:
    """A product with a 4-bit weight: beyond a few rows the whole weight is unpacked first, then `linear`.

    The statistics of a doubly quantised weight are unpacked too, once as they are and once with their mean
    (`_dequant_linear_fallback`).
    """
    unpacked = []
    if A.numel() // max(1, A.shape[-1]) > _FUSED_ROWS:
        if absmax_8bit is not None:
            unpacked = [cuda.new(tuple(absmax_8bit.shape), torch.float32) for _ in range(2)]
            del unpacked[0]
        unpacked.append(cuda.new(tuple(shapeB), A.dtype))
        cuda.blas_workspace()
    return cuda.new((*A.shape[:-1], shapeB[0]), A.dtype)
