"""Copies between host and device, and reads of device values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memlens.simulation.core.ledger import CUDA, HOST
from memlens.simulation.core.session import REAL_HOST_BYTES
from memlens.simulation.rules.registry import operator

if TYPE_CHECKING:
    from torch import Tensor

    from memlens.simulation.core.session import Simulation


@operator("aten::_to_copy")
def to_copy(sim: Simulation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A copy that may change device: `device=cpu` of a simulated tensor reads it, `device=meta` makes one.

    Where the target is not said (in backward), a copy of a real host tensor to meta goes to the device.
    """
    source = args[0]
    device = kwargs.get("device")
    to_host = device is not None and device.type == "cpu"
    if not source.is_meta and (device is None or to_host):
        return torch.ops.aten._to_copy.default(source, **kwargs)
    # of a host tensor it is the gradient of one that has data (DeviceMode): it has data too, at any size
    large = to_host and source.numel() * source.element_size() > REAL_HOST_BYTES
    if large and not sim.is_host(source):
        return _large_on_host(sim, source, kwargs)
    if to_host:
        real = sim.values.read(source)
        return torch.ops.aten._to_copy.default(real, **kwargs)
    entry = sim.ledger.of(source) if source.is_meta else None
    target: str | None
    if device is not None and sim.target is not None:
        target = sim.target
    elif entry is not None:
        target = entry.device
    else:
        target = None if source.is_meta else CUDA
    if source.is_meta:
        out = torch.ops.aten._to_copy.default(source, **kwargs)
    else:
        twin = torch.empty_strided(source.shape, source.stride(), dtype=source.dtype, device="meta")
        out = torch.ops.aten._to_copy.default(twin, **{**kwargs, "device": torch.device("meta")})
    if target is not None:
        sim.ledger.adopt(out.untyped_storage(), target, sim.category(), sim.site("_to_copy"), sim.stream)
        known = sim.values.known_value(source) if source.is_meta and sim.values.known else None
        if known is not None and out.is_contiguous():
            sim.values.remember(out, known.to(out.dtype))
    return out


def _large_on_host(sim: Simulation, source: Tensor, kwargs: dict[str, Any]) -> Tensor:
    options = {name: value for name, value in kwargs.items() if name not in ("pin_memory", "device")}
    out: Tensor = torch.ops.aten._to_copy.default(source, **options, device=torch.device("meta"))
    sim.ledger.adopt(out.untyped_storage(), HOST)
    return out


@operator("aten::copy_")
def copy_(sim: Simulation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Writes into the first argument; between host and device nothing is computed."""
    destination, source = args[0], args[1]
    if not destination.is_meta and not source.is_meta:
        return torch.ops.aten.copy_.default(*args, **kwargs)
    if destination.is_meta:
        sim.values.forget(destination)
        if not source.is_meta and source.shape == destination.shape and destination.dtype == source.dtype:
            sim.values.remember(destination, source)
        return destination
    torch.ops.aten.copy_.default(destination, sim.values.read(source))
    return destination


@operator("aten::_local_scalar_dense")
def item(sim: Simulation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`.item()`: the value where it is known, else the stand-in, said in the assumptions."""
    tensor = args[0]
    return torch.ops.aten._local_scalar_dense.default(sim.values.read(tensor) if tensor.is_meta else tensor)


@operator("aten::equal")
def equal(sim: Simulation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`torch.equal`: of the data where it is known, else of the stand-ins."""
    left, right = (sim.values.read(t) if t.is_meta else t for t in args)
    return torch.equal(left, right)
