"""`torch.autograd.graph.save_on_cpu(pin_memory=True)` on the simulated device."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks


def offloaded(sim: Any) -> saved_tensors_hooks:
    """What forward saves for backward goes to the host, and comes back when backward asks for it.

    torch's own hooks run outside the simulation, and would need the real bytes.
    """

    def pack(tensor: Tensor) -> tuple[bool, Tensor]:
        with torch._C.DisableTorchFunction(), torch.no_grad():
            return (True, sim.download(tensor)) if sim.is_cuda(tensor) else (False, tensor)

    def unpack(packed: tuple[bool, Tensor]) -> Tensor:
        moved, tensor = packed
        with torch._C.DisableTorchFunction(), torch.no_grad():
            return sim.upload(tensor) if moved else tensor

    return saved_tensors_hooks(pack, unpack)
