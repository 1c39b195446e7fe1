"""Batch normalisation on CUDA: the output, and in training mean and 1/std per channel in the wider type.

ATen/native/cudnn/BatchNorm.cpp and cuda/Normalization.cu; cuDNN's own workspace is below 512 bytes for
contiguous inputs (a recorded ResNet-50 step) and left out. In evaluation nothing is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from memlens.simulation.rules.common import HALVES
from memlens.simulation.rules.registry import operator

if TYPE_CHECKING:
    from memlens.simulation.core.cuda import Cuda


@operator("aten::native_batch_norm", "aten::_native_batch_norm_legit", on_device=True)
def batch_norm(
    cuda: Cuda, input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, training: bool
) -> tuple[Tensor, Tensor, Tensor]:
    channels = input.shape[1] if training else 0
    wider = torch.float32 if input.dtype in HALVES else input.dtype
    out = cuda.new_like(input)
    mean, inverse_deviation = cuda.new((channels,), wider), cuda.new((channels,), wider)
    if training:
        for statistic in (running_mean, running_var):
            if statistic is not None:
                cuda.sim.values.forget(statistic)
    return out, mean, inverse_deviation
