"""What code gets when it reads a device value that nobody computed.

A small tensor that came from the host keeps its data until something writes to it, so reading it back gives
the truth. Anything else gets a stand-in, and the simulation says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memlens.model import Assumption

if TYPE_CHECKING:
    from memlens.simulation.session import Simulation

KEPT_BYTES = 64 * 1024  # host tensors up to this size keep their data when they are uploaded
STAND_INS = {"float": 1.0, "int": 1, "bool": False}


class Values:
    """Real data of simulated tensors where it is known, and the stand-ins that were handed out."""

    def __init__(self, simulation: Simulation) -> None:
        self.sim = simulation
        self.known = 0
        self._told: set[str] = set()

    def remember(self, tensor: Tensor, real: Tensor) -> None:
        """`tensor` was copied from `real`, a host tensor with data."""
        entry = self.sim.ledger.of(tensor)
        if entry is not None and real.numel() * real.element_size() <= KEPT_BYTES:
            entry.value = real.detach().clone()
            self.known += 1

    def forget(self, tensor: Tensor) -> None:
        """`tensor` was written to: its data is no longer known."""
        entry = self.sim.ledger.of(tensor)
        if entry is not None and entry.value is not None:
            entry.value = None
            self.known -= 1

    def read(self, tensor: Tensor) -> Tensor:
        """A real host tensor of `tensor`'s shape: its data where known, else the stand-in."""
        entry = self.sim.ledger.of(tensor)
        if entry is not None and entry.value is not None and entry.value.dtype == tensor.dtype:
            kept = entry.value
            if kept.is_contiguous() and tensor.storage_offset() + _extent(tensor) <= kept.numel():
                return torch.as_strided(kept, tensor.shape, tensor.stride(), tensor.storage_offset()).clone()
        self._tell(tensor)
        return torch.full(tensor.shape, self.stand_in(tensor.dtype), dtype=tensor.dtype)

    def stand_in(self, dtype: torch.dtype) -> Any:
        if dtype is torch.bool:
            return STAND_INS["bool"]
        return STAND_INS["float" if dtype.is_floating_point or dtype.is_complex else "int"]

    def _tell(self, tensor: Tensor) -> None:
        site = self.sim.site("item")
        where = site.where or "an unknown line"
        value = self.stand_in(tensor.dtype)
        if where not in self._told:
            self._told.add(where)
            self.sim.assume(
                Assumption(
                    f"a value read from the device at {where} is taken to be {value}",
                    "the simulation computes sizes, not values; code that depends on it may go another way",
                )
            )


def _extent(tensor: Tensor) -> int:
    """Elements from the first to the last that the tensor reaches."""
    if tensor.numel() == 0:
        return 0
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
