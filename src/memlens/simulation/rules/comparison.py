"""Comparisons that C++ writes in place, except where it sees a mode that watches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from memlens.simulation.rules.registry import composite

if TYPE_CHECKING:
    from memlens.simulation.core.cuda import Cuda


@composite("aten::isclose", why="masks are combined in place (TensorCompare.cpp)")
def isclose(cuda: Cuda, self: Tensor, other: Tensor, rtol: float, atol: float, equal_nan: bool) -> Tensor:
    """Equal, both not a number if that counts, or near enough and finite."""
    close = self == other
    if equal_nan and (self.is_floating_point() or self.is_complex()):
        close |= self.isnan().logical_and_(other.isnan())
    if rtol == 0 and atol == 0:
        return close
    whole = not (self.is_floating_point() or self.is_complex())
    left = self.to(torch.get_default_dtype()) if self.dtype is torch.bool else self
    right = other.to(torch.get_default_dtype()) if whole else other
    allowed = atol + (rtol * right).abs()
    actual = (left - right).abs()
    close |= actual.isfinite().logical_and_(actual <= allowed)
    return close
