"""What methods and properties of tensors answer on the simulated device.

Each handler has the parameters of the method that it stands for, after the mode and the method itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from memlens.simulation.core.ledger import PLAIN
from memlens.simulation.core.sparse import coo, is_sparse
from memlens.simulation.torch_api import legacy_types
from memlens.simulation.torch_api.device import CPU, GPU, as_device, check_index, handles

if TYPE_CHECKING:
    from memlens.simulation.torch_api.device import DeviceMode, Function


# what tensors say of themselves -----------------------------------------------------------------------


@handles(Tensor.device.__get__)
def _device(mode: DeviceMode, func: Function, tensor: Tensor, /) -> torch.device:
    return mode.device_of(tensor)


@handles(Tensor.is_cuda.__get__)  # type: ignore[attr-defined]
def _is_cuda(mode: DeviceMode, func: Function, tensor: Tensor, /) -> bool:
    return mode.device_of(tensor).type == "cuda"


@handles(Tensor.is_cpu.__get__)  # type: ignore[attr-defined]
def _is_cpu(mode: DeviceMode, func: Function, tensor: Tensor, /) -> bool:
    return mode.device_of(tensor).type == "cpu"


@handles(Tensor.is_meta.__get__)  # type: ignore[attr-defined]
def _is_meta(mode: DeviceMode, func: Function, tensor: Tensor, /) -> bool:
    return mode.device_of(tensor).type == "meta"


@handles(Tensor.get_device)
def _get_device(mode: DeviceMode, func: Function, tensor: Tensor, /) -> int:
    return 0 if mode.sim.is_cuda(tensor) else -1


@handles(Tensor.is_pinned)
def _is_pinned(mode: DeviceMode, func: Function, tensor: Tensor, /, device: object = None) -> bool:
    entry = mode.sim.ledger.of(tensor)
    return bool(entry and entry.pinned)


@handles(Tensor.type)
def _type(
    mode: DeviceMode, func: Function, tensor: Tensor, /, dtype: object = None, *args: object, **kwargs: object
) -> str | Tensor:
    if dtype is None:
        name: str = func(tensor)
        return name.replace("torch.meta.", "torch.cuda." if mode.sim.is_cuda(tensor) else "torch.")
    legacy = legacy_types.meaning(dtype)
    if legacy is not None:
        return _to(mode, Tensor.to, tensor, *legacy)
    converted: Tensor = func(tensor, dtype, *args, **kwargs)
    return converted


@handles(Tensor.new)
def _new(mode: DeviceMode, func: Function, tensor: Tensor, /, *args: object, device: object = None) -> Tensor:
    """A constructor of the type that the tensor has."""
    if not tensor.is_meta:
        made: Tensor = func(tensor, *args) if device is None else func(tensor, *args, device=device)
        return made
    if is_sparse(tensor) and len(args) == 3:  # `grad.new(indices, values, size)` of torch's own optimizers
        parts: Any = args
        indices, values, size = parts
        return coo(tuple(size), indices, values)
    return legacy_types.made(mode, args, tensor.dtype, mode.device_of(tensor))


@handles(Tensor.new_tensor)
def _new_tensor(
    mode: DeviceMode, func: Function, tensor: Tensor, data: object, /, *, dtype: torch.dtype | None = None,
    device: object = None, requires_grad: bool = False, **layout: object,
) -> Tensor:  # fmt: skip
    """`torch.tensor`, by default as the tensor is."""
    place = mode.device_of(tensor) if device is None else device
    options = {"dtype": dtype or tensor.dtype, "device": place, "requires_grad": requires_grad}
    made: Tensor = mode.create(torch.tensor, (data,), options)
    return made


# moving -----------------------------------------------------------------------------------------------


@handles(Tensor.to)
def _to(
    mode: DeviceMode,
    func: Function,
    tensor: Tensor,
    /,
    *args: object,
    dtype: torch.dtype | None = None,
    device: object = None,
    other: Tensor | None = None,
    copy: bool = False,
    non_blocking: bool = False,
    memory_format: torch.memory_format | None = None,
) -> Tensor:
    """`to(device, dtype, non_blocking, copy)`, `to(dtype, ...)` or `to(other, ...)`, each also by keyword."""
    place, flags = None, []
    for value in (*args, device, other):
        if isinstance(value, Tensor):
            place, dtype = mode.device_of(value), value.dtype
        elif isinstance(value, torch.dtype):
            dtype = value
        elif isinstance(value, bool):
            flags.append(value)  # non_blocking, copy
        elif value is not None:
            place = as_device(value)
    copy = copy or (len(flags) > 1 and flags[1])
    if place is not None and place.type != mode.device_of(tensor).type:
        return mode.move(tensor, place, dtype=dtype, memory_format=memory_format)
    layout = {} if memory_format is None else {"memory_format": memory_format}
    moved: Tensor = func(tensor, dtype if dtype is not None else tensor.dtype, copy=copy, **layout)
    return moved


@handles(torch._C._nn._parse_to)
def _parse_to(
    mode: DeviceMode, func: Function, /, *args: object, tensor: Tensor | None = None, **kwargs: object
) -> object:
    """What `module.to(...)` was given: parsed by torch, with the devices that the user means."""

    def meant(value: object) -> tuple[object, ...]:
        if isinstance(value, Tensor):
            return mode.device_of(value), value.dtype
        return (as_device(value),) if isinstance(value, int) and not isinstance(value, bool) else (value,)

    given = [part for value in (args if tensor is None else (tensor, *args)) for part in meant(value)]
    if "device" in kwargs:
        kwargs["device"] = as_device(kwargs["device"])
    return func(*given, **kwargs)


@handles(Tensor.cuda)
def _cuda(
    mode: DeviceMode,
    func: Function,
    tensor: Tensor,
    /,
    device: object = None,
    non_blocking: bool = False,
    memory_format: torch.memory_format | None = None,
) -> Tensor:
    check_index(GPU if device is None else as_device(device))
    return tensor if mode.sim.is_cuda(tensor) else mode.move(tensor, GPU, memory_format=memory_format)


@handles(Tensor.cpu)
def _cpu(mode: DeviceMode, func: Function, tensor: Tensor, /, memory_format: object = None) -> Tensor:
    return tensor if mode.device_of(tensor).type == "cpu" else mode.move(tensor, CPU)


@handles(Tensor.pin_memory)
def _pin_memory(mode: DeviceMode, func: Function, tensor: Tensor, /, device: object = None) -> Tensor:
    has_storage = tensor.is_meta and mode.sim.ledger.of(tensor) is not None
    copy = tensor.clone()
    if has_storage:
        mode.sim.ledger.storages[copy.untyped_storage()._cdata].pinned = True
    return copy


@handles(Tensor.tolist)
def _tolist(mode: DeviceMode, func: Function, tensor: Tensor, /) -> object:
    return func(mode.sim.values.read(tensor) if tensor.is_meta else tensor)


@handles(Tensor.numpy, Tensor.__array__)
def _numpy(mode: DeviceMode, func: Function, tensor: Tensor, /, *args: object, **kwargs: object) -> object:
    if mode.sim.is_cuda(tensor):
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. "
            "Use Tensor.cpu() to copy the tensor to host memory first."
        )
    return func(mode.sim.values.read(tensor)) if tensor.is_meta else func(tensor, *args, **kwargs)


@handles(Tensor.data_ptr)
def _data_ptr(mode: DeviceMode, func: Function, tensor: Tensor, /) -> int:
    """The address in the simulated allocator: different tensors have different ones, views their base's."""
    entry = mode.sim.ledger.of(tensor) if tensor.is_meta else None
    if entry is None:
        return int(func(tensor))
    start = entry.key if entry.block is None else entry.block.address
    return int(start + tensor.storage_offset() * tensor.element_size())


@handles(Tensor.__repr__)
def _repr(mode: DeviceMode, func: Function, tensor: Tensor, /, **kwargs: object) -> str:
    device = f"device='{mode.device_of(tensor)}'"
    with torch._C.DisableTorchFunction():
        text: str = func(tensor, **kwargs)
    return text.replace("device='meta'", device)


@handles(Tensor.__format__)
def _format(mode: DeviceMode, func: Function, tensor: Tensor, spec: str, /) -> str:
    if tensor.is_meta and tensor.dim():
        return _repr(mode, Tensor.__repr__, tensor)
    text: str = func(mode.sim.values.read(tensor) if tensor.is_meta else tensor, spec)
    return text


_FINITE = {
    torch.isfinite: True, Tensor.isfinite: True, torch.isnan: False, Tensor.isnan: False,
    torch.isinf: False, Tensor.isinf: False, torch.isposinf: False, Tensor.isposinf: False,
    torch.isneginf: False, Tensor.isneginf: False,
}  # fmt: skip


@handles(*_FINITE)
def _is_finite(mode: DeviceMode, func: Function, /, *args: object, **kwargs: object) -> Tensor:
    """Loops stop when their loss is not finite: what nobody computed is taken to be finite."""
    answer: Tensor = func(*args, **kwargs)
    if answer.is_meta:
        mode.sim.values.take_as(answer, _FINITE[func])
    return answer


@handles(torch.ne, Tensor.ne, Tensor.__ne__)
def _differs(mode: DeviceMode, func: Function, left: object, right: object, /, **kwargs: object) -> Tensor:
    """`loss != loss` asks whether it is NaN."""
    answer: Tensor = func(left, right, **kwargs)
    if left is right and isinstance(left, Tensor) and answer.is_meta:
        mode.sim.values.take_as(answer, False)
    return answer


@handles(torch._amp_foreach_non_finite_check_and_unscale_)
def _unscale(
    mode: DeviceMode, func: Function, gradients: object, overflowed: Tensor, inverse: Tensor, /
) -> None:
    """No gradient overflowed; whoever scales by hand reads that too."""
    func(gradients, overflowed, inverse)
    mode.sim.values.take_as(overflowed, 0)


@handles(Tensor.share_memory_)
def _same(mode: DeviceMode, func: Function, tensor: Tensor, /) -> Tensor:
    return tensor


@handles(Tensor.data.__set__)  # type: ignore[attr-defined]
def _set_data(mode: DeviceMode, func: Function, tensor: Tensor, value: Tensor, /) -> None:
    """`parameter.data = moved`: CPU and CUDA tensors may take each other's place, CPU and meta may not."""
    if tensor.is_meta or not value.is_meta:
        func(tensor, value)
        return
    data = value.detach()
    if isinstance(tensor, nn.Parameter):
        data = nn.Parameter(data, tensor.requires_grad)
    else:
        data.requires_grad_(tensor.requires_grad)
    has_gradient = tensor.grad is not None
    mode.moved.swap(tensor, data)
    if has_gradient:  # it is on the host still; nn.Module moves it next
        with mode.sim.create_on(PLAIN):
            tensor.grad = torch.empty_like(tensor)
