"""No silent zeros: a tensor of the device that the ledger does not hold is an error that names the line.

Its bytes would be missing from every figure. All that a program makes on the device, on the host or on the
meta device by name is in the ledger; so what meets the device's tensors and is not there was made before the
simulation, or a rule of ours lost it. Asked at each operator for its arguments, at each optimizer step and at
the end for the parameters and gradients of modules and optimizers.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import torch

from memlens.errors import UncountedTensor
from memlens.units import format_bytes

if TYPE_CHECKING:
    from torch import Tensor, nn

    from memlens.simulation.core.session import Simulation


def refuse_uncounted(sim: Simulation, tensor: Tensor, reader: str) -> None:
    """Raise UncountedTensor for a tensor without an entry in the ledger; what has no bytes may pass."""
    nbytes = tensor.untyped_storage().nbytes()
    if nbytes == 0:
        return
    where = sim.site(reader).where
    raise UncountedTensor(
        f"{reader}{f' at {where}' if where else ''} uses a tensor of {format_bytes(nbytes)} "
        f"(shape {tuple(tensor.shape)}, {tensor.dtype}) that was never put on the simulated device: "
        "its bytes would be missing from every figure",
        hint="move it with .to('cuda') or make it inside the simulation; if your code does, please report it",
    )


def check_parameters(sim: Simulation, parameters: Iterable[Tensor], owner: str) -> None:
    """Raise UncountedTensor where a parameter or its gradient has no data and is not in the ledger."""
    with torch._C.DisableTorchFunction():
        for parameter in parameters:
            for tensor in (parameter, parameter.grad):
                if tensor is not None and tensor.is_meta and sim.ledger.of(tensor) is None:
                    refuse_uncounted(sim, tensor, owner)


def check_module(sim: Simulation, module: nn.Module) -> None:
    """The same for everything that a module holds."""
    name = type(module).__name__
    check_parameters(sim, module.parameters(), f"a parameter of {name}")
    check_parameters(sim, module.buffers(), f"a buffer of {name}")


def check_optimizer(sim: Simulation, optimizer: torch.optim.Optimizer) -> None:
    """The same for the parameters that an optimizer holds."""
    for group in optimizer.param_groups:
        check_parameters(sim, group["params"], type(optimizer).__name__)
