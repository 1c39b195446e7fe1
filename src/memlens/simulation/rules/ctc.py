"""Connectionist temporal classification: PyTorch's own kernels keep a table of log-probabilities.

ATen/native/LossCTC.cpp reads the lengths on the host first (not where a dispatch mode watches).
cuda/LossCTC.cu: log_alpha is (batch, time, 2 * longest target + 1); backward makes log_beta of the same size
beside the gradient. cuDNN, which keeps less, runs only where targets are int32 on the host and at most 255
long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memlens.model import Category
from memlens.simulation.rules.registry import composite, operator

if TYPE_CHECKING:
    from memlens.simulation.core.session import Simulation


@composite(
    "aten::ctc_loss.Tensor", why="lengths are read on the host; unknown ones are taken to be the longest"
)
def ctc_loss(
    sim: Simulation,
    scores: Tensor,
    targets: Tensor,
    input_lengths: Tensor,
    target_lengths: Tensor,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Tensor:
    """`scores` is (time, batch, classes); `targets` (batch, longest) or all of them in a row."""
    widest = targets.shape[1] if targets.dim() == 2 else targets.shape[0] // max(target_lengths.numel(), 1)
    lengths = _numbers(sim, input_lengths, scores.shape[0]), _numbers(sim, target_lengths, widest)
    found: Tensor = torch.ops.aten.ctc_loss.IntList(
        scores, targets, *lengths, blank, reduction, zero_infinity
    )
    return found


def _numbers(sim: Simulation, lengths: Tensor, most: int) -> list[int]:
    entry = sim.ledger.of(lengths) if lengths.is_meta else None
    if lengths.is_meta and (entry is None or entry.value is None):
        return [most] * lengths.numel()
    return [int(number) for number in (sim.values.read(lengths) if lengths.is_meta else lengths).tolist()]


@operator("aten::_ctc_loss_backward", on_device=True)
def backward(sim: Simulation, args: Any, kwargs: Any) -> Tensor:
    """(grad, log_probs, targets, input_lengths, target_lengths, neg_log_likelihood, log_alpha, ...)."""
    gradient, table = torch.empty_like(args[1]), args[6]
    sim.adopt(gradient, "_ctc_loss_backward")
    size = table.numel() * table.dtype.itemsize  # log_beta
    sim.ledger.scratch(size, Category.TEMPORARY, sim.site("_ctc_loss_backward"), sim.stream)()
    return gradient
