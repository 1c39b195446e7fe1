"""Dropout: CUDA has a fused kernel where other devices multiply by a mask.

ATen/native/Dropout.cpp, `is_fused_kernel_acceptable`: on CUDA, training, 0 < p < 1 and a tensor with elements
take `native_dropout`, which keeps a bool mask (1 byte an element) for backward. `dropout_`, feature dropout
and alpha dropout decompose everywhere alike, with a mask of the input's dtype.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from memlens.simulation.rules.registry import composite

if TYPE_CHECKING:
    from torch import Tensor

    from memlens.simulation.core.cuda import Cuda


@composite("aten::dropout", why="CUDA fuses it into native_dropout: the output and a bool mask, nothing else")
def dropout(cuda: Cuda, input: Tensor, p: float, train: bool) -> Tensor:
    if not train or p == 0 or input.numel() == 0:
        return input
    if p == 1:
        return input * torch.zeros((), dtype=input.dtype, device="meta")
    return torch.native_dropout(input, p, True)[0]
