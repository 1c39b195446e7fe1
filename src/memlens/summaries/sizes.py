"""Shapes as users of torchinfo (with the batch) and of torchsummary (without it) write them."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from memlens.scenarios.inputs import InputSpec

CONVOLUTIONS = ((nn.Conv1d, 1), (nn.Conv2d, 2), (nn.Conv3d, 3))


def shape_spec(
    model: Any,
    size: tuple[int, ...],
    dtype: torch.dtype | None,
    batch_dim: int | None,
    batch_size: int | None,
) -> InputSpec:
    """One input. `batch_dim` and `batch_size` say that the batch is not in `size`; else the model decides.

    >>> shape_spec(nn.Conv2d(3, 8, 3), (3, 32, 32), None, None, None)
    InputSpec(shape=(3, 32, 32), dtype=None, name=None, batched=False)
    >>> shape_spec(nn.Conv2d(3, 8, 3), (1, 3, 32, 32), None, None, None).batched
    True
    """
    if batch_dim is not None:
        place = batch_dim if batch_dim >= 0 else len(size) + 1 + batch_dim
        return InputSpec((*size[:place], batch_size or 1, *size[place:]), dtype, batched=True)
    return InputSpec(size, dtype, batched=batch_size is None and has_batch(model, size))


def has_batch(model: Any, size: tuple[int, ...]) -> bool:
    """Whether a shape has its batch: as its first convolution wants it, otherwise from two dimensions on."""
    if isinstance(model, nn.Module):
        for module in model.modules():
            for kind, spatial in CONVOLUTIONS:
                if isinstance(module, kind):
                    return len(size) == spatial + 2
    return len(size) > 1
