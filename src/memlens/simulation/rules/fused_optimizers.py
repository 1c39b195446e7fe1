"""Fused optimizer steps that have no meta kernel: they write to lists of tensors and allocate nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlens.simulation.rules.registry import fallback

if TYPE_CHECKING:
    from memlens.simulation.core.cuda import Cuda


@fallback(
    "aten::_fused_sgd_", "aten::_fused_sgd_.tensor_lr",
    "aten::_fused_adam_.tensor_lr", "aten::_fused_adamw_.tensor_lr",
    "aten::_fused_adagrad_", "aten::_fused_adagrad_.tensor_lr",
)  # fmt: skip
def in_place(cuda: Cuda) -> None:
    """One kernel over all lists (ATen/native/cuda/FusedSgdKernel.cu, FusedAdamKernel.cu)."""
