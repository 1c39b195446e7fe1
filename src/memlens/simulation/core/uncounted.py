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
from memlens.simulation.core.sparse import is_sparse, parts_of
from memlens.units import format_bytes

if TYPE_CHECKING:
    from torch import Tensor, nn

    from memlens.simulation.core.ledger import Ledger


def refuse_uncounted(tensor: Tensor, reader: str, where: str) -> None:
    """Raise UncountedTensor for a tensor without an entry in the ledger; what has no bytes may pass.

    `reader` is the operator or object that uses it, `where` the user's line or empty.
    """
    parts = parts_of(tensor) if is_sparse(tensor) else (tensor,)
    nbytes = sum(part.untyped_storage().nbytes() for part in parts)
    if nbytes == 0:
        return
    raise UncountedTensor(
        f"{reader}{f' at {where}' if where else ''} uses a tensor of {format_bytes(nbytes)} "
        f"(shape {tuple(tensor.shape)}, {tensor.dtype}) that was never put on the simulated device: "
        "its bytes would be missing from every figure",
        hint="move it with .to('cuda') or make it inside the simulation; if your code does, please report it",
    )


def _check(ledger: Ledger, parameters: Iterable[Tensor], owner: str, where: str = "") -> None:
    """Raise UncountedTensor where a parameter or its gradient has no data and is not in the ledger."""
    with torch._C.DisableTorchFunction():
        for parameter in parameters:
            for tensor in (parameter, parameter.grad):
                if tensor is not None and tensor.is_meta and ledger.of(tensor) is None:
                    refuse_uncounted(tensor, owner, where)


def check_module(ledger: Ledger, module: nn.Module) -> None:
    """The same for everything that a module holds."""
    name = type(module).__name__
    _check(ledger, module.parameters(), f"a parameter of {name}")
    _check(ledger, module.buffers(), f"a buffer of {name}")


def check_optimizer(ledger: Ledger, optimizer: torch.optim.Optimizer, where: str = "") -> None:
    """The same for the parameters that an optimizer holds."""
    for group in optimizer.param_groups:
        _check(ledger, group["params"], type(optimizer).__name__, where)
