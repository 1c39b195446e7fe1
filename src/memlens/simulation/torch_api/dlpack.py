"""Memory shared with other libraries: DLPack and the CUDA array interface.

A simulated tensor has no memory to share. Handing one to torch itself is a view of it, as ever.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memlens.errors import UnsupportedOperator
from memlens.simulation.torch_api.device import handles

if TYPE_CHECKING:
    from memlens.simulation.torch_api.device import DeviceMode, Function

_CUDA = 2  # kDLCUDA, dlpack.h


def refused(what: str) -> UnsupportedOperator:
    return UnsupportedOperator(
        f"{what} shares memory of the device with another library, and a simulated tensor has none",
        hint="simulate that part in torch, or copy to the host first with .cpu()",
    )


@handles(Tensor.__dlpack__)
def _dlpack(mode: DeviceMode, func: Function, tensor: Tensor, /, **kwargs: object) -> object:
    if mode.sim.is_cuda(tensor):
        raise refused("__dlpack__")
    return func(tensor, **kwargs)


@handles(Tensor.__dlpack_device__)
def _dlpack_device(mode: DeviceMode, func: Function, tensor: Tensor, /) -> object:
    return (_CUDA, 0) if mode.sim.is_cuda(tensor) else func(tensor)


@handles(Tensor.__cuda_array_interface__.__get__)
def _array(mode: DeviceMode, func: Function, tensor: Tensor, /) -> object:
    if mode.sim.is_cuda(tensor):
        raise refused("__cuda_array_interface__")
    return func(tensor)


def replacements() -> dict[str, Any]:
    """Dotted names and their stand-ins; torch has both functions under two names."""
    to, from_ = torch.to_dlpack, torch.from_dlpack  # type: ignore[attr-defined]

    def to_dlpack(tensor: Tensor) -> Any:
        if tensor.is_cuda:
            raise refused("to_dlpack")
        return to(tensor)

    def from_dlpack(ext_tensor: Any, **options: Any) -> Tensor:
        if isinstance(ext_tensor, Tensor) and ext_tensor.is_cuda:
            return ext_tensor.clone() if options.get("copy") else ext_tensor.detach()
        return from_(ext_tensor, **options)

    names = {"to_dlpack": to_dlpack, "from_dlpack": from_dlpack}
    return {f"{place}.{name}": f for place in ("torch", "torch.utils.dlpack") for name, f in names.items()}
