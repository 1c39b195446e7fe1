"""bitsandbytes: what its CUDA kernels allocate that its shape functions do not say."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memlens.simulation.rules.registry import library_operator

if TYPE_CHECKING:
    from memlens.simulation.core.session import Simulation

# rows that the fused kernel takes on every card (`_GEMM_4BIT_CUSTOM_FLOOR_M`, bitsandbytes 0.50,
# backends/cuda/ops.py); from there to 1,536 rows it depends on the card and the shape, and we take the larger
_FUSED_ROWS = 4


@library_operator("bitsandbytes::gemm_4bit")
def gemm_4bit(sim: Simulation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """A product with a 4-bit weight: beyond a few rows the whole weight is unpacked first, then `linear`.

    The statistics of a doubly quantised weight are unpacked too, once as they are and once with their mean
    (`_dequant_linear_fallback`).
    """
    a, shape = args[0], tuple(args[2])
    nested = args[7] if len(args) > 7 else kwargs.get("absmax_8bit")
    unpacked = []
    if a.numel() // max(1, a.shape[-1]) > _FUSED_ROWS:
        if nested is not None:
            unpacked = [made(sim, tuple(nested.shape), torch.float32) for _ in range(2)]
            del unpacked[0]
        unpacked.append(made(sim, shape, a.dtype))
        sim.blas_workspace("gemm_4bit")
    return made(sim, (*a.shape[:-1], shape[0]), a.dtype)


def made(sim: Simulation, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor on the device."""
    out = torch.empty(shape, dtype=dtype, device="meta")
    sim.adopt(out, "gemm_4bit")
    return out
