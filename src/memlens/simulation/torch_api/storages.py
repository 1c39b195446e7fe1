"""Memory that code takes, moves or resizes without an operator: the ledger is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memlens.model import Alloc, Category
from memlens.simulation.core.ledger import CUDA
from memlens.simulation.torch_api.device import GPU, as_device, check_index

if TYPE_CHECKING:
    from collections.abc import Callable

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


def raw_functions(sim: Simulation) -> dict[str, Any]:
    """Bytes of the allocator that belong to no tensor, by their address, until they are given back."""
    raw: dict[int, Callable[[], None]] = {}

    def alloc(size: int, device: Any = None, stream: Any = None) -> int:
        free = sim.ledger.scratch(size, Category.UNKNOWN, sim.site("caching_allocator_alloc"), sim.stream)
        address = next(event.address for event in reversed(sim.events) if isinstance(event, Alloc)) or 0
        raw[address] = free
        return address

    def delete(address: int) -> None:
        raw.pop(address)()

    return {"caching_allocator_alloc": alloc, "caching_allocator_delete": delete}
