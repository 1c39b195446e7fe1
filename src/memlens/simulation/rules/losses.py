"""Losses whose meta kernels are missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memlens.model import Assumption
from memlens.simulation.rules.registry import operator

if TYPE_CHECKING:
    from memlens.simulation.session import Simulation


def _longest(sim: Simulation, targets: Tensor, lengths: Any) -> int:
    """The longest target: known where its length came from the host, else as long as there is room for."""
    if not isinstance(lengths, Tensor):
        return max(lengths, default=0)
    known = sim.values.known_value(lengths) if lengths.is_meta else lengths
    if known is not None:
        return int(known.max()) if known.numel() else 0
    longest = targets.shape[-1]
    sim.assume(
        Assumption(
            f"the longest target of ctc_loss is taken to have {longest:,} labels",
            "their lengths are on the device and not computed; shorter ones need less",
        )
    )
    return longest


@operator("aten::_ctc_loss", "aten::_ctc_loss.Tensor")
def ctc_loss(sim: Simulation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """The loss of each sample, and log_alpha, kept for backward (ATen/native/cuda/LossCTC.cu).

    log_alpha is (N, T, 2 * longest target + 1): every label with a blank on either side.
    """
    log_probs, targets, _, target_lengths = args[:4]
    if not log_probs.is_meta:
        return torch.ops.aten._ctc_loss(*args, **kwargs)
    batched = log_probs.dim() == 3
    time, batch = log_probs.shape[0], log_probs.shape[1] if batched else 1
    states = 2 * _longest(sim, targets, target_lengths) + 1
    loss = log_probs.new_empty((batch,) if batched else ())
    log_alpha = log_probs.new_empty((batch, time, states) if batched else (time, states))
    sim.adopt(loss, "_ctc_loss")
    sim.adopt(log_alpha, "_ctc_loss")
    return loss, log_alpha


@operator("aten::_ctc_loss_backward", "aten::_ctc_loss_backward.Tensor")
def ctc_loss_backward(sim: Simulation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """The gradient of log_probs; log_beta, as large as log_alpha, lives meanwhile."""
    log_probs, log_alpha = args[1], args[6]
    if not log_probs.is_meta:
        return torch.ops.aten._ctc_loss_backward(*args, **kwargs)
    grad = torch.empty_like(log_probs)
    sim.adopt(grad, "_ctc_loss_backward")
    log_beta = torch.empty_like(log_alpha)
    sim.adopt(log_beta, "_ctc_loss_backward")
    return grad
