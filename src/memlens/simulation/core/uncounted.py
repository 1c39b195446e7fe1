"""No silent zeros: a tensor of the device that the ledger does not hold is an error that names the line.

Its bytes would be missing from every figure. All that a program makes on the device, on the host or on the
meta device by name is in the ledger; so what meets the device's tensors and is not there was made before the
simulation, or a rule of ours lost it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memlens.errors import UncountedTensor
from memlens.units import format_bytes

if TYPE_CHECKING:
    from torch import Tensor

    from memlens.simulation.core.session import Simulation


def refuse_uncounted(sim: Simulation, tensor: Tensor, operator: str) -> None:
    """Raise UncountedTensor for a tensor without an entry in the ledger; what has no bytes may pass."""
    nbytes = tensor.untyped_storage().nbytes()
    if nbytes == 0:
        return
    where = sim.site(operator).where
    raise UncountedTensor(
        f"{operator}{f' at {where}' if where else ''} reads a tensor of {format_bytes(nbytes)} "
        f"(shape {tuple(tensor.shape)}, {tensor.dtype}) that was never put on the simulated device: "
        "its bytes would be missing from every figure",
        hint="move it with .to('cuda') or make it inside the simulation; if the script does so, "
        "please report this line",
    )
