"""Storages that code moves or resizes without an operator: the ledger is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memlens.simulation.core.ledger import CUDA
from memlens.simulation.torch_api.device import GPU, as_device, check_index

if TYPE_CHECKING:
    from memlens.simulation.core.session import Simulation


def replacements(sim: Simulation) -> dict[str, Any]:
    """`storage.cuda()`, as `torch.load(map_location=...)` calls it, and `storage.resize_()`, as FSDP does."""
    cuda, resize_ = torch.UntypedStorage.cuda, torch.UntypedStorage.resize_

    def to_cuda(storage: Any, device: Any = None, non_blocking: bool = False) -> Any:
        check_index(GPU if device is None else as_device(device))
        if storage.device.type not in ("cpu", "meta"):
            return cuda(storage, device, non_blocking)
        entry = sim.ledger.storages.get(storage._cdata)
        if entry is not None and entry.device is CUDA:
            return storage
        copy = torch.UntypedStorage(storage.nbytes(), device="meta")
        sim.ledger.adopt(copy, CUDA, sim.category(), sim.site("copy_"), sim.stream)
        return copy

    def resize(storage: Any, nbytes: int) -> Any:
        entry = sim.ledger.storages.get(storage._cdata)
        resized = resize_(storage, nbytes)
        if entry is not None:
            sim.ledger.resized(entry, storage.nbytes(), sim.site("resize_"), sim.stream)
        return resized

    return {"torch.UntypedStorage.cuda": to_cuda, "torch.UntypedStorage.resize_": resize}
