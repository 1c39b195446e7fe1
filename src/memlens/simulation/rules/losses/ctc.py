"""Connectionist temporal classification: PyTorch's own kernels keep a table of log-probabilities.

ATen/native/LossCTC.cpp reads the lengths on the host first (not where a dispatch mode watches).
cuda/LossCTC.cu: log_alpha is (batch, time, 2 * longest target + 1); backward makes log_beta of the same size
beside the gradient. cuDNN, which keeps less, runs only where targets are int32 on the host and at most 255
long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from memlens.simulation.rules.common import nbytes
from memlens.simulation.rules.registry import composite, operator

if TYPE_CHECKING:
    from memlens.simulation.core.cuda import Cuda


@composite(
    "aten::ctc_loss.Tensor", why="lengths are read on the host; unknown ones are taken to be the longest"
)
def ctc_loss(
    cuda: Cuda,
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    blank: int,
    reduction: int,
    zero_infinity: bool,
) -> Tensor:
    """`log_probs` is (time, batch, classes); `targets` (batch, longest) or all of them in a row."""
    longest = targets.shape[1] if targets.dim() == 2 else targets.shape[0] // max(target_lengths.numel(), 1)
    lengths = _numbers(cuda, input_lengths, log_probs.shape[0]), _numbers(cuda, target_lengths, longest)
    loss: Tensor = torch.ops.aten.ctc_loss.IntList(
        log_probs, targets, *lengths, blank, reduction, zero_infinity
    )
    return loss


def _numbers(cuda: Cuda, lengths: Tensor, most: int) -> list[int]:
    entry = cuda.sim.ledger.of(lengths) if lengths.is_meta else None
    if lengths.is_meta and (entry is None or entry.value is None):
        return [most] * lengths.numel()
    return [int(number) for number in cuda.read(lengths).tolist()]


@operator("aten::_ctc_loss_backward", on_device=True)
def ctc_loss_backward(cuda: Cuda, log_probs: Tensor, log_alpha: Tensor) -> Tensor:
    gradient = cuda.new_like(log_probs)
    cuda.scratch(nbytes(log_alpha))  # log_beta
    return gradient
