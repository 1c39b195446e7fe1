"""What Python code sees: a mode that makes tensors answer as CUDA tensors would.

The mode sits at torch's Python boundary. Device arguments become `meta`; `.device`, `.is_cuda`, `.to()` and
the like answer from the ledger; tensors made on the host stay real while they are small.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, TypeVar

import torch
from torch import Tensor
from torch.nn.parameter import is_lazy
from torch.overrides import TorchFunctionMode
from torch.utils import _device as default_device

from memlens.errors import UsageError
from memlens.simulation.core.ledger import CUDA, HOST, PLAIN
from memlens.simulation.core.session import REAL_HOST_BYTES
from memlens.simulation.core.sparse import is_sparse, rebuilt
from memlens.simulation.core.tensors_in import tensors_in
from memlens.simulation.torch_api.moved_modules import Moved

if TYPE_CHECKING:
    from memlens.simulation.core.session import Simulation

META = torch.device("meta")
GPU = torch.device("cuda", 0)
CPU = torch.device("cpu")
_DEVICE = {CUDA: GPU, HOST: CPU, PLAIN: META}  # of what the ledger says

Function = Callable[..., Any]  # a function or a method of torch's
# what answers instead of it: called with the mode, the function, and the arguments that it was given
Handler = Callable[Concatenate["DeviceMode", Function, ...], object]
H = TypeVar("H", bound=Handler)
_HANDLERS: dict[Any, Handler] = {}
# made from data the host already holds: real whatever their size
_FROM_DATA = {torch.tensor, torch.as_tensor, torch.from_numpy, torch.frombuffer, torch.asarray}
_SPARSE = {
    torch.sparse_coo_tensor, torch.sparse_csr_tensor, torch.sparse_csc_tensor, torch.sparse_bsr_tensor,
    torch.sparse_bsc_tensor, torch.sparse_compressed_tensor,
}  # fmt: skip


def handles(*functions: Function) -> Callable[[H], H]:
    """Register a handler for these functions of torch's Python API."""

    def register(handler: H) -> H:
        for function in functions:
            _HANDLERS[function] = handler
        return handler

    return register


class DeviceMode(TorchFunctionMode):
    """Makes the code inside believe in a CUDA device."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__()
        self.sim = simulation
        self.moved = Moved()
        self.default: torch.device | None = None  # torch.set_default_device inside the simulation
        self.factories = set(default_device._device_constructors()) | _FROM_DATA

    def __torch_function__(
        self, func: Any, types_: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        handler = _HANDLERS.get(func)
        if handler is not None:
            return handler(self, func, *args, **kwargs)
        if func in self.factories:
            return self.create(func, args, kwargs)
        if kwargs.get("device") is not None:
            device = as_device(kwargs["device"])
            check_index(device)
            if device.type in ("cuda", "meta"):
                kwargs = _for_meta(kwargs)
                with self.sim.create_on(CUDA if device.type == "cuda" else PLAIN):
                    return func(*args, **kwargs)
            return self._on_host(func, args, kwargs)
        if self.sim.ledger.host_bytes and torch.is_grad_enabled():
            args, kwargs = self._without_data(args, kwargs)
        if type(func) is types.FunctionType:
            # a function of torch's own in Python: modes are off inside it, so what it makes from nothing
            # belongs where its arguments live
            with self.sim.create_on(self._place(args, kwargs)):
                return func(*args, **kwargs)
        return func(*args, **kwargs)

    # placing ------------------------------------------------------------------------------------------

    def device_of(self, tensor: Tensor) -> torch.device:
        """The device that the user's code is told."""
        if not tensor.is_meta:
            return tensor.device
        with torch._C.DisableTorchFunctionSubclass():  # lazy parameters refuse to be asked
            entry = self.sim.ledger.of(tensor.values() if tensor.is_nested else tensor)
        return META if entry is None else _DEVICE[entry.device]

    def _without_data(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """Small parameters of the host lose their data, differentiably, where they meet large ones without.

        Else their gradient would be one without data, and autograd refuses it: they have data.
        """
        if not any(self.sim.is_host(tensor) for tensor in tensors_in((args, kwargs))):
            return args, kwargs

        def lift(value: Any) -> Any:
            if type(value) in (list, tuple):
                return type(value)(map(lift, value))
            if isinstance(value, Tensor) and not value.is_meta and value.requires_grad:
                return torch.ops.aten._to_copy.default(value, device=META)
            return value

        with self.sim.create_on(HOST):
            return tuple(map(lift, args)), {name: lift(value) for name, value in kwargs.items()}

    def _place(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
        for value in (*args, *kwargs.values()):
            first = value[0] if isinstance(value, (list, tuple)) and value else value
            entry = self.sim.ledger.of(first) if isinstance(first, Tensor) and first.is_meta else None
            if entry is not None:
                return entry.device
        return None

    def create(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A factory: `torch.empty`, `torch.randn`, `torch.tensor`, ..."""
        given = kwargs.get("device")
        if func in _SPARSE:
            return self._sparse(func, args, kwargs)
        device = as_device(given) if given is not None else self.default_device()
        check_index(device)
        if device.type == "cuda":
            if func in _FROM_DATA:
                return self._from_data(func, args, kwargs)
            with self.sim.create_on(CUDA):
                return func(*args, **_for_meta(kwargs))
        if device.type == "meta":
            with self.sim.create_on(PLAIN):
                return func(*args, **{**kwargs, "device": META})
        if func in _FROM_DATA:
            return func(*args, **kwargs)
        return self._on_host(func, args, {**kwargs, "device": device})

    def default_device(self) -> torch.device:
        return default_device.CURRENT_DEVICE or self.default or CPU

    def _from_data(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """`torch.tensor(data, device="cuda")`: made on the host, then copied."""
        data = args[0] if args else kwargs.get("data")
        if isinstance(data, Tensor) and func is not torch.tensor:
            return self.move(data, GPU, dtype=kwargs.get("dtype"))
        rest = {name: value for name, value in kwargs.items() if name not in ("device", "requires_grad")}
        made = self.move(func(*args, **rest), GPU)
        return made.requires_grad_() if kwargs.get("requires_grad") else made

    def _sparse(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The factory of a sparse tensor, on the device where it says so or where its parts are."""
        parts = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        on_device = any(self.sim.is_cuda(part) for part in parts)
        given = kwargs.get("device")
        device = GPU if given is None and on_device else as_device(given or self.default_device())
        check_index(device)
        if device.type != "cuda":
            return func(*args, **kwargs)
        rest = {name: value for name, value in kwargs.items() if name not in ("device", "requires_grad")}
        if on_device:
            if len(args) + len(rest.keys() & {"size"}) <= (2 if func is torch.sparse_coo_tensor else 3):
                raise UsageError(
                    f"{func.__name__} of tensors on the device needs its size: the indices are not computed",
                    hint="give it size=(rows, columns)",
                )
            with self.sim.create_on(CUDA):
                moved = [self.move(v, GPU) if isinstance(v, Tensor) and not v.is_meta else v for v in args]
                made = func(*moved, **rest, device=META)
        else:
            made = self.move(func(*args, **rest), GPU)
        return made.requires_grad_() if kwargs.get("requires_grad") else made

    def _on_host(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """On the host: real while small, without data when large."""
        pinned = bool(kwargs.pop("pin_memory", False))
        with self.sim.create_on(PLAIN):
            trial = func(*args, **_for_meta(kwargs))
        if not isinstance(trial, Tensor) or trial.untyped_storage().nbytes() <= REAL_HOST_BYTES:
            return func(*args, **kwargs)
        entry = self.sim.ledger.adopt(trial.untyped_storage(), HOST)
        entry.pinned = pinned
        return trial

    def move(self, tensor: Tensor, device: torch.device, **to: Any) -> Tensor:
        """`tensor.to(device)` between the host and the simulated device."""
        check_index(device)
        to = {name: value for name, value in to.items() if value is not None}
        if is_lazy(tensor):  # a lazy module's: no shape yet, but a device
            place = {"cuda": CUDA, "cpu": HOST}.get(device.type, PLAIN)
            with self.sim.create_on(place):
                return torch.empty(0, dtype=to.get("dtype", tensor.dtype), device=META)
        if is_sparse(tensor):
            return rebuilt(tensor, lambda part: self.move(part, device))
        if device.type == "cuda":
            return self.sim.upload(tensor, **to)
        if device.type == "cpu":
            return self.sim.download(tensor, **to)
        with self.sim.create_on(PLAIN):
            out: Tensor = torch.ops.aten._to_copy.default(tensor, device=META, **to)
            return out


def as_device(device: Any) -> torch.device:
    """A torch.device from what people pass: a device, a string, an index."""
    if isinstance(device, torch.device):
        return device
    return torch.device("cuda", device) if isinstance(device, int) else torch.device(device)


def check_index(device: torch.device) -> None:
    if device.type == "cuda" and device.index not in (None, 0):
        raise UsageError(
            f"device {device} was asked for, but the simulation has one GPU, cuda:0",
            hint="simulate one process of a distributed run at a time",
        )


def _for_meta(kwargs: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments of a factory as the meta device takes them."""
    return {k: v for k, v in kwargs.items() if k not in ("pin_memory", "generator", "device")} | {
        "device": META
    }
