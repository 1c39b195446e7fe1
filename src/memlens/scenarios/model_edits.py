"""What advice may change in a model and its loop, in addition to the options of `predict`.

Everything here is data on a Scenario; `prepare`, `train` and `infer` apply it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from memlens.model import Assumption

# changes a model in place, on the host, when its weights have their dtype; returns what it assumed
ModelEdit = Callable[[nn.Module], Assumption | None]
# a context around forward and loss, made for each batch from the simulation
Around = Callable[[Any], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class Edits:
    """A loop as most people write it, unless a field says otherwise.

    `set_to_none` False is `zero_grad(set_to_none=False)`: gradients stay, filled with zeros. `free_outputs`
    is `del outputs` as soon as the loss is there. `channels_last` lays out the model and images so.
    """

    model: tuple[ModelEdit, ...] = ()
    around_forward: tuple[Around, ...] = ()
    set_to_none: bool = True
    free_outputs: bool = False
    channels_last: bool = False

    def apply(self, sim: Any, model: nn.Module) -> nn.Module:
        """`model` as the edits want it, before it is moved to the device."""
        for edit in self.model:
            assumption = edit(model)
            if assumption is not None:
                sim.assume(assumption)
        if not self.channels_last:
            return model
        return model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def around(self, sim: Any) -> AbstractContextManager[Any]:
        """The contexts around one forward, entered in their order."""
        stack = ExitStack()
        for make in self.around_forward:
            stack.enter_context(make(sim))
        return stack

    def layout(self, tensor: torch.Tensor) -> torch.Tensor:
        """A batch on its way to the device."""
        if self.channels_last and tensor.ndim == 4 and tensor.is_floating_point():
            return tensor.contiguous(memory_format=torch.channels_last)
        return tensor
