"""What rules of many operators need: the sizes of tensors and of the copies that kernels make of them."""

from __future__ import annotations

import torch
from torch import Tensor

Sizes = tuple[int, ...]  # bytes of allocations that live at the same time
Steps = list[Sizes]  # such allocations, one after the other

INT64_BYTES = 8
HALVES = (torch.float16, torch.bfloat16)


def nbytes(tensor: Tensor) -> int:
    """Bytes of all elements, each counted as often as it can be indexed."""
    return tensor.numel() * tensor.dtype.itemsize


def copy_unless_contiguous(tensor: Tensor) -> int:
    """Bytes of `tensor.contiguous()`, 0 where it is the tensor itself."""
    return 0 if tensor.is_contiguous() else nbytes(tensor)


def round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
