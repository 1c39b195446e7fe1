"""What a rule is given beside the operator's arguments: the card, and ways to allocate on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from memlens.errors import UnsupportedOperator
from memlens.model import Assumption, Category

if TYPE_CHECKING:
    from torch import Tensor

    from memlens.devices import Gpu
    from memlens.model import Site
    from memlens.simulation.core.session import Simulation


class Cuda:
    """One operator on the simulated card. What it allocates is attributed to it and to the user's line.

    `operator` is its name without namespace and overload, `sim` the simulation for what is rarely needed.
    """

    __slots__ = ("operator", "sim")

    def __init__(self, sim: Simulation, operator: str) -> None:
        self.sim, self.operator = sim, operator

    @property
    def gpu(self) -> Gpu:
        return self.sim.gpu

    @property
    def site(self) -> Site:
        """The user's line, the module, and this operator."""
        return self.sim.site(self.operator)

    @property
    def where(self) -> str:
        """The user's line in words: `train.py:12`, or `an unknown line`."""
        return self.site.where or "an unknown line"

    # memory -------------------------------------------------------------------------------------------

    def new(
        self,
        shape: tuple[int, ...],
        dtype: torch.dtype,
        memory_format: torch.memory_format = torch.contiguous_format,
    ) -> Tensor:
        """A new tensor on the card."""
        return self.adopt(torch.empty(shape, dtype=dtype, device="meta", memory_format=memory_format))

    def new_like(self, tensor: Tensor) -> Tensor:
        """A new tensor on the card, as `torch.empty_like` makes it."""
        return self.adopt(torch.empty_like(tensor))

    def adopt(self, tensor: Tensor) -> Tensor:
        """The same tensor: its storage, new and on the meta device, is on the card from now on."""
        self.sim.adopt(tensor, self.operator)
        return tensor

    def scratch(self, *sizes: int, category: Category = Category.TEMPORARY) -> None:
        """Allocate these bytes together, and free them at once, the last one first."""
        site = self.site
        frees = [self.sim.ledger.scratch(size, category, site, self.sim.stream) for size in sizes]
        for free in reversed(frees):
            free()

    def hold(self, size: int, category: Category = Category.TEMPORARY) -> Callable[[], None]:
        """Allocate bytes; the returned call frees them."""
        return self.sim.ledger.scratch(size, category, self.site, self.sim.stream)

    def blas_workspace(self) -> None:
        """The operator asks cuBLAS, which takes its workspace the first time."""
        self.sim.blas_workspace(self.operator)

    # data ---------------------------------------------------------------------------------------------

    def has(self, tensor: Tensor) -> bool:
        """Whether this tensor lives on the card."""
        return self.sim.is_cuda(tensor)

    def known(self, tensor: Tensor) -> Tensor | None:
        """The data of a tensor, where it is known."""
        return self.sim.values.known_value(tensor)

    def read(self, tensor: Tensor) -> Tensor:
        """A tensor as the host reads it: its data, or the stand-in, which becomes an assumption."""
        return self.sim.values.read(tensor) if tensor.is_meta else tensor

    # words --------------------------------------------------------------------------------------------

    def assume(self, what: str, why: str, low_bytes: int = 0, high_bytes: int = 0) -> None:
        """Write into the result what was guessed, and how many bytes less or more the truth may be."""
        self.sim.assume(Assumption(what, why, low_bytes, high_bytes))

    def unsupported(self, why: str, hint: str) -> UnsupportedOperator:
        """The error to raise where nothing can be said, not even a bound."""
        where = self.site.where
        return UnsupportedOperator(f"{self.operator}{f' at {where}' if where else ''}: {why}", hint=hint)
