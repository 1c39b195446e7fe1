"""Batch normalisation on CUDA: the output, and in training mean and 1/std per channel in the wider type.

ATen/native/cudnn/BatchNorm.cpp and cuda/Normalization.cu; cuDNN's own workspace is below 512 bytes for
contiguous inputs (a recorded ResNet-50 step) and left out. In evaluation nothing is kept.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from memlens.simulation.rules.common import HALVES
from memlens.simulation.rules.registry import fallback, operator

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


# nn.SyncBatchNorm: kernels without a meta kernel (ATen/native/cuda/Normalization.cu) ---------------------


def _per_channel(cuda: Cuda, source: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    wider = torch.float32 if source.dtype in HALVES else source.dtype
    return cuda.new((source.shape[1],), wider if dtype is None else dtype)


@fallback("aten::batch_norm_stats")
def statistics(cuda: Cuda, input: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and 1/std."""
    return _per_channel(cuda, input), _per_channel(cuda, input)


@fallback("aten::batch_norm_gather_stats", "aten::batch_norm_gather_stats_with_counts")
def gathered_statistics(cuda: Cuda, input: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and 1/std over all processes."""
    return _per_channel(cuda, input), _per_channel(cuda, input)


@fallback("aten::batch_norm_elemt")
def normalised(cuda: Cuda, input: Tensor) -> Tensor:
    return cuda.new_like(input)


@fallback("aten::batch_norm_backward_reduce")
def reduced_gradients(
    cuda: Cuda, input: Tensor, weight: Tensor | None, input_g: bool, weight_g: bool, bias_g: bool
) -> tuple[Tensor | None, ...]:
    """Two sums for the input's gradient, and the gradients of weight and bias, as far as they are wanted."""
    own = None if weight is None else weight.dtype
    return (
        _per_channel(cuda, input) if input_g else None,
        _per_channel(cuda, input) if input_g else None,
        _per_channel(cuda, input, own) if weight_g else None,
        _per_channel(cuda, input, own) if bias_g else None,
    )


@fallback("aten::batch_norm_backward_elemt")
def input_gradient(cuda: Cuda, input: Tensor) -> Tensor:
    return cuda.new_like(input)
