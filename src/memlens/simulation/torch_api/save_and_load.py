"""`torch.save` and `torch.load` around tensors that have no data.

A file on disk is not overwritten with tensors that were never computed; loading puts on the simulated device
what would be put on the real one.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from memlens.errors import UsageError
from memlens.model import Assumption
from memlens.simulation.core.ledger import CUDA, PLAIN
from memlens.simulation.torch_api.device import GPU, as_device

if TYPE_CHECKING:
    from memlens.simulation.torch_api.device import DeviceMode


def replacements(mode: DeviceMode) -> dict[str, Any]:
    """`torch.save` and `torch.load`, under both of their names."""
    save, load = torch.serialization.save, torch.serialization.load

    def save_simulated(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        storage = getattr(obj, "_untyped_storage", obj)
        if isinstance(storage, torch.UntypedStorage) and storage.device.type == "meta":
            raise UsageError(
                "a simulated tensor was pickled, and it has no data",
                hint="pickle outside the simulation, or save with torch.save, which writes shapes only",
            )
        if not isinstance(f, (str, os.PathLike)) or not _holds_simulated(mode, obj):
            save(obj, f, *args, **kwargs)
            return
        where = mode.sim.site("save").where or "an unknown line"
        mode.sim.assume(
            Assumption(f"torch.save at {where} wrote no file", "simulated tensors have shapes and no data")
        )

    def load_simulated(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        bound_for_device: set[int] = set()

        def place(storage: Any, location: str) -> Any:
            if callable(map_location):
                chosen = map_location(storage, location)
                if chosen is not None and not mode.sim.holds(chosen):
                    return chosen
                target = _target(None, location) if chosen is None else "cuda"
            else:
                target = _target(map_location, location)
            if target == "cuda":
                bound_for_device.add(storage._cdata)
            return storage

        return _moved(mode, load(f, place, *args, **kwargs), bound_for_device)

    table = {"torch.serialization.save": save_simulated, "torch.serialization.load": load_simulated}
    if torch.save is save:  # else somebody looks after files already
        table |= {"torch.save": save_simulated, "torch.load": load_simulated}
    return table


def _target(map_location: Any, location: str) -> str:
    """The device type that `map_location` sends a storage from `location` to; meta was the device's."""
    if isinstance(map_location, dict):
        location = map_location.get(location, location)
    elif map_location is not None:
        return as_device(map_location).type
    return "cuda" if location.startswith(("cuda", "meta")) else "cpu"


def _holds_simulated(mode: DeviceMode, obj: Any) -> bool:
    leaves = _pytree.tree_leaves(obj)
    tensors = [t for m in leaves if isinstance(m, nn.Module) for t in (*m.parameters(), *m.buffers())]
    tensors += [t for t in leaves if isinstance(t, Tensor)]
    with torch._C.DisableTorchFunction():
        return any(mode.sim.is_cuda(t) or mode.sim.is_host(t) for t in tensors)


def _moved(mode: DeviceMode, loaded: Any, bound_for_device: set[int]) -> Any:
    """What was loaded, with the tensors over those storages on the device; shared ones stay shared."""
    done: dict[tuple[Any, ...], Tensor] = {}

    def move(tensor: Tensor) -> Tensor:
        with torch._C.DisableTorchFunction():
            storage = tensor.untyped_storage()
            if storage._cdata not in bound_for_device:
                return tensor
            key = (storage._cdata, tensor.storage_offset(), tensor.shape, tensor.stride())
            if tensor.is_meta:
                entry = mode.sim.ledger.of(tensor)
                if entry is None or entry.device is PLAIN:
                    mode.sim.ledger.adopt(storage, CUDA, site=mode.sim.site("load"))
                return tensor
            if key not in done:
                moved = mode.move(tensor.detach(), GPU)
                done[key] = (
                    nn.Parameter(moved, tensor.requires_grad)
                    if isinstance(tensor, nn.Parameter)
                    else moved.requires_grad_(tensor.requires_grad)
                )
            return done[key]

    def visit(leaf: Any) -> Any:
        if isinstance(leaf, nn.Module):
            return leaf._apply(move)
        return move(leaf) if isinstance(leaf, Tensor) else leaf

    return _pytree.tree_map(visit, loaded)
