"""Batch normalisation on CUDA: the output, and in training mean and 1/std per channel in the wider type.

ATen/native/cudnn/BatchNorm.cpp and cuda/Normalization.cu; cuDNN's own workspace is below 512 bytes for
contiguous inputs (a recorded ResNet-50 step) and left out. In evaluation nothing is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memlens.simulation.rules.registry import operator

if TYPE_CHECKING:
    from memlens.simulation.core.session import Simulation

_HALVES = (torch.float16, torch.bfloat16)


@operator("aten::native_batch_norm", "aten::_native_batch_norm_legit", on_device=True)
def batch_norm(sim: Simulation, args: Any, kwargs: Any) -> Any:
    """(input, weight, bias, running_mean, running_var, training, momentum, eps)."""
    source = args[0]
    channels = source.shape[1] if args[5] else 0
    kept = torch.float32 if source.dtype in _HALVES else source.dtype
    out = torch.empty_like(source)
    mean, deviation = (torch.empty(channels, dtype=kept, device="meta") for _ in range(2))
    for tensor in (out, mean, deviation):
        sim.adopt(tensor, "native_batch_norm")
    if args[5]:
        for statistic in args[3:5]:
            if isinstance(statistic, Tensor):
                sim.values.forget(statistic)
    return out, mean, deviation
