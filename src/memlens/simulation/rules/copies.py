"""Copies between host and device, and reads of device values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memlens.simulation.core.ledger import CUDA, HOST
from memlens.simulation.core.session import REAL_HOST_BYTES
from memlens.simulation.rules.common import nbytes
from memlens.simulation.rules.registry import operator

if TYPE_CHECKING:
    from torch import Tensor

    from memlens.simulation.core.cuda import Cuda

_aten = torch.ops.aten
_META = torch.device("meta")


@operator("aten::_to_copy")
def to_copy(
    cuda: Cuda,
    self: Tensor,
    dtype: torch.dtype | None,
    layout: torch.layout | None,
    device: torch.device | None,
    pin_memory: bool | None,
    non_blocking: bool,
    memory_format: torch.memory_format | None,
) -> Tensor:
    """A copy that may change device: `device=cpu` of a simulated tensor reads it, `device=meta` makes one.

    Where no device is given (in backward), a copy of a real host tensor to meta goes to the device.
    """
    options = {"dtype": dtype, "layout": layout, "non_blocking": non_blocking, "memory_format": memory_format}
    to_host = device is not None and device.type == "cpu"
    if not self.is_meta and (device is None or to_host):
        return _aten._to_copy.default(self, device=device, pin_memory=pin_memory, **options)
    # of a host tensor it is the gradient of one that has data (DeviceMode): it has data too, at any size
    large = to_host and nbytes(self) > REAL_HOST_BYTES
    if large and not cuda.sim.is_host(self):
        on_host: Tensor = _aten._to_copy.default(self, device=_META, **options)
        cuda.sim.ledger.adopt(on_host.untyped_storage(), HOST)
        return on_host
    if to_host:
        real = cuda.sim.values.read(self)
        return _aten._to_copy.default(real, device=device, pin_memory=pin_memory, **options)
    target = _target(cuda, self, device)
    if self.is_meta:
        out = _aten._to_copy.default(self, device=device, pin_memory=pin_memory, **options)
    else:
        twin = torch.empty_strided(self.shape, self.stride(), dtype=self.dtype, device=_META)
        out = _aten._to_copy.default(twin, device=_META, pin_memory=pin_memory, **options)
    if target is not None:
        _settle(cuda, self, out, target)
    return out


def _target(cuda: Cuda, source: Tensor, device: torch.device | None) -> str | None:
    """Where the copy lives; None if the ledger knows nothing of its source."""
    if device is not None and cuda.sim.target is not None:
        return cuda.sim.target
    entry = cuda.sim.ledger.of(source) if source.is_meta else None
    if entry is not None:
        return entry.device
    return None if source.is_meta else CUDA


def _settle(cuda: Cuda, source: Tensor, copy: Tensor, target: str) -> None:
    """Enter a copy into the ledger, with its source's data where that is known."""
    sim = cuda.sim
    sim.ledger.adopt(copy.untyped_storage(), target, sim.category(), cuda.site, sim.stream)
    known = cuda.known(source) if source.is_meta and sim.values.known else None
    if known is not None and copy.is_contiguous():
        sim.values.remember(copy, known.to(copy.dtype))
    sim.values.take_as(copy, sim.values.healthy_value(source))


@operator("aten::copy_")
def copy_(cuda: Cuda, self: Tensor, src: Tensor, non_blocking: bool) -> Tensor:
    """Writes into the first argument; between host and device nothing is computed."""
    if not self.is_meta and not src.is_meta:
        return _aten.copy_.default(self, src, non_blocking)
    values = cuda.sim.values
    if self.is_meta:
        values.forget(self)
        if not src.is_meta and src.shape == self.shape and self.dtype == src.dtype:
            values.remember(self, src)
        return self
    _aten.copy_.default(self, values.read(src))
    return self


@operator("aten::_local_scalar_dense")
def item(cuda: Cuda, self: Tensor) -> Any:
    """`.item()`: the value where it is known, else the stand-in, which becomes an assumption."""
    cuda.sim.recorded.wait()
    return _aten._local_scalar_dense.default(cuda.read(self))


@operator("aten::equal")
def equal(cuda: Cuda, self: Tensor, other: Tensor) -> bool:
    """`torch.equal`: of the data where it is known, else of the stand-ins."""
    return torch.equal(cuda.read(self), cuda.read(other))
