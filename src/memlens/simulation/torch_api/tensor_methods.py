"""What methods and properties of tensors answer on the simulated device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from memlens.simulation.core.ledger import PLAIN
from memlens.simulation.torch_api import legacy_types
from memlens.simulation.torch_api.device import CPU, GPU, as_device, check_index, handles

if TYPE_CHECKING:
    from memlens.simulation.torch_api.device import DeviceMode


# what tensors say of themselves -----------------------------------------------------------------------


@handles(Tensor.device.__get__)
def _device(mode: DeviceMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return mode.device_of(args[0])


@handles(Tensor.is_cuda.__get__)
def _is_cuda(mode: DeviceMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return mode.device_of(args[0]).type == "cuda"


@handles(Tensor.is_cpu.__get__)
def _is_cpu(mode: DeviceMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return mode.device_of(args[0]).type == "cpu"


@handles(Tensor.is_meta.__get__)
def _is_meta(mode: DeviceMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return mode.device_of(args[0]).type == "meta"


@handles(Tensor.get_device)
def _get_device(mode: DeviceMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return 0 if mode.sim.is_cuda(args[0]) else -1


@handles(Tensor.is_pinned)
def _is_pinned(mode: DeviceMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    entry = mode.sim.ledger.of(args[0])
    return bool(entry and entry.pinned)


@handles(Tensor.type)
def _type(mode: DeviceMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    wanted = args[1] if len(args) > 1 else kwargs.get("dtype")
    if wanted is None:
        named: str = func(args[0])
        return named.replace("torch.meta.", "torch.cuda." if mode.sim.is_cuda(args[0]) else "torch.")
    legacy = legacy_types.meaning(wanted)
    if legacy is not None:
        return _to(mode, Tensor.to, (args[0], *legacy), {})
    return func(*args, **kwargs)


# moving -----------------------------------------------------------------------------------------------


@handles(Tensor.to)
def _to(mode: DeviceMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensor = args[0]
    device, dtype, copy = None, kwargs.get("dtype"), bool(kwargs.get("copy"))
    flags = []
    for value in (*args[1:], kwargs.get("device"), kwargs.get("other")):
        if isinstance(value, Tensor):
            device, dtype = mode.device_of(value), value.dtype
        elif isinstance(value, torch.dtype):
            dtype = value
        elif isinstance(value, bool):
            flags.append(value)  # non_blocking, copy
        elif value is not None:
            device = as_device(value)
    copy = copy or (len(flags) > 1 and flags[1])
    here = mode.device_of(tensor)
    layout = kwargs.get("memory_format")
    if device is not None and device.type != here.type:
        return mode.move(tensor, device, dtype=dtype, memory_format=layout)
    rest: dict[str, Any] = {"copy": copy}
    if layout is not None:
        rest["memory_format"] = layout
    return func(tensor, dtype if dtype is not None else tensor.dtype, **rest)


@handles(torch._C._nn._parse_to)
def _parse_to(mode: DeviceMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What `module.to(...)` was given: parsed by torch, with the devices that the user means."""

    def meant(value: Any) -> tuple[Any, ...]:
        if isinstance(value, Tensor):
            return mode.device_of(value), value.dtype
        return (as_device(value),) if isinstance(value, int) and not isinstance(value, bool) else (value,)

    tensor = kwargs.pop("tensor", None)
    given = [part for value in (args if tensor is None else (tensor, *args)) for part in meant(value)]
    if "device" in kwargs:
        kwargs["device"] = as_device(kwargs["device"])
    return func(*given, **kwargs)


@handles(Tensor.cuda)
def _cuda(mode: DeviceMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    index = args[1] if len(args) > 1 else kwargs.get("device")
    device = GPU if index is None else as_device(index)
    check_index(device)
    return (
        args[0]
        if mode.sim.is_cuda(args[0])
        else mode.move(args[0], GPU, memory_format=kwargs.get("memory_format"))
    )


@handles(Tensor.cpu)
def _cpu(mode: DeviceMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0] if mode.device_of(args[0]).type == "cpu" else mode.move(args[0], CPU)


@handles(Tensor.pin_memory)
def _pin_memory(mode: DeviceMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    entry = mode.sim.ledger.of(args[0]) if args[0].is_meta else None
    if entry is None:
        return args[0].clone()
    copy = args[0].clone()
    mode.sim.ledger.storages[copy.untyped_storage()._cdata].pinned = True
    return copy


@handles(Tensor.tolist)
def _tolist(mode: DeviceMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(mode.sim.values.read(args[0])) if args[0].is_meta else func(*args, **kwargs)


@handles(Tensor.numpy, Tensor.__array__)
def _numpy(mode: DeviceMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensor = args[0]
    if mode.sim.is_cuda(tensor):
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. "
            "Use Tensor.cpu() to copy the tensor to host memory first."
        )
    return func(mode.sim.values.read(tensor)) if tensor.is_meta else func(*args, **kwargs)


@handles(Tensor.data_ptr)
def _data_ptr(mode: DeviceMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The address in the simulated allocator: different tensors have different ones, views their base's."""
    tensor = args[0]
    entry = mode.sim.ledger.of(tensor) if tensor.is_meta else None
    if entry is None:
        return func(*args, **kwargs)
    start = entry.key if entry.block is None else entry.block.address
    return start + tensor.storage_offset() * tensor.element_size()


@handles(Tensor.__repr__)
def _repr(mode: DeviceMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    device = f"device='{mode.device_of(args[0])}'"
    with torch._C.DisableTorchFunction():
        return func(*args, **kwargs).replace("device='meta'", device)


@handles(Tensor.__format__)
def _format(mode: DeviceMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensor = args[0]
    if not tensor.is_meta:
        return func(*args)
    return (
        func(mode.sim.values.read(tensor), *args[1:])
        if tensor.dim() == 0
        else _repr(mode, Tensor.__repr__, args[:1], {})
    )


@handles(torch.isfinite, Tensor.isfinite)
def _isfinite(mode: DeviceMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Loops ask it to stop when their loss is not finite: what nobody computed is taken to be finite."""
    answer = func(*args, **kwargs)
    if answer.is_meta:
        mode.sim.values.take_as_true(answer)
    return answer


@handles(Tensor.share_memory_)
def _same(mode: DeviceMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return args[0]


@handles(Tensor.data.__set__)
def _set_data(mode: DeviceMode, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`parameter.data = moved`: CPU and CUDA tensors may take each other's place, CPU and meta may not."""
    tensor, value = args
    if tensor.is_meta or not value.is_meta:
        return func(*args, **kwargs)
    requires_grad = tensor.requires_grad
    twin = value.detach()
    twin = (
        nn.Parameter(twin, requires_grad)
        if isinstance(tensor, nn.Parameter)
        else twin.requires_grad_(requires_grad)
    )
    has_gradient = tensor.grad is not None
    mode.moved.swap(tensor, twin)
    if has_gradient:  # it is on the host still; nn.Module moves it next
        with mode.sim.create_on(PLAIN):
            tensor.grad = torch.empty_like(tensor)
    return None
