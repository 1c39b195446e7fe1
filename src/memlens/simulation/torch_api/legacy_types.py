"""`torch.cuda.FloatTensor` and its kin: device and dtype in one, PyTorch's way before 0.4, still in use."""

from __future__ import annotations

from numbers import Integral
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from memlens.simulation.torch_api.device import DeviceMode

# torch/csrc/tensor/python_tensor.cpp
_DTYPES = {
    "FloatTensor": torch.float32, "DoubleTensor": torch.float64, "HalfTensor": torch.float16,
    "BFloat16Tensor": torch.bfloat16, "ByteTensor": torch.uint8, "CharTensor": torch.int8,
    "ShortTensor": torch.int16, "IntTensor": torch.int32, "LongTensor": torch.int64, "BoolTensor": torch.bool,
}  # fmt: skip


class LegacyType(type):
    """A type that is called with sizes or data, and of which every tensor of its dtype is an instance."""

    dtype: torch.dtype
    mode: DeviceMode
    is_cuda = True
    is_sparse = False
    layout = torch.strided

    def __call__(cls, *args: Any, device: Any = None) -> Any:
        return made(cls.mode, args, cls.dtype, torch.device("cuda", 0))

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor) and instance.is_cuda and instance.dtype is cls.dtype


def made(mode: DeviceMode, args: tuple[Any, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """What a constructor makes that is called with sizes, with a tensor, with data, or with nothing."""
    with torch._C.DisableTorchFunction():
        if not args or isinstance(args[0], (Integral, torch.Size)):
            tensor: Tensor = mode.create(torch.empty, args or (0,), {"dtype": dtype, "device": device})
            return tensor
        (data,) = args
        if not isinstance(data, Tensor):  # an array or numbers, or a sequence of them
            data = torch.as_tensor(data)
        return data.to(dtype) if mode.device_of(data) == device else mode.move(data.to(dtype), device)


def name_of(wanted: Any) -> str:
    return wanted if isinstance(wanted, str) else f"{wanted.__module__}.{wanted.__name__}"


def meaning(wanted: Any) -> tuple[torch.device, torch.dtype] | None:
    """Device and dtype of `torch.cuda.HalfTensor`, `"torch.LongTensor"`; None for what is no such type."""
    if not isinstance(wanted, (str, type)):
        return None
    place, _, name = name_of(wanted).rpartition(".")
    if name not in _DTYPES or place not in ("torch", "torch.cuda"):
        return None
    return torch.device("cuda", 0) if place == "torch.cuda" else torch.device("cpu"), _DTYPES[name]


def legacy_type(mode: DeviceMode, name: str) -> LegacyType:
    return LegacyType(name, (), {"dtype": _DTYPES[name], "mode": mode, "__module__": "torch.cuda"})


def replacements(mode: DeviceMode) -> dict[str, Any]:
    """Dotted names and their stand-ins."""
    before = torch.set_default_tensor_type

    def set_default_tensor_type(wanted: Any) -> None:
        """With `"torch.cuda.FloatTensor"` factories make CUDA tensors from now on."""
        name = name_of(wanted)
        mode.default = torch.device("cuda", 0) if name.startswith("torch.cuda.") else None
        before(name.replace("torch.cuda.", "torch."))

    new = Tensor.__new__

    def new_tensor(*args: Any, **kwargs: Any) -> Any:
        """`torch.Tensor(2, 3)` follows the default, `torch.FloatTensor(2, 3)` does not."""
        # the compiler, should the code load it, compares the signature with its own copy's, unless it is this
        cls, *args = args  # type: ignore[assignment]
        if cls is Tensor and mode.default_device().type == "cuda":
            return made(mode, tuple(args), torch.get_default_dtype(), torch.device("cuda", 0))
        return new(cls, *args, **kwargs)

    table: dict[str, Any] = {f"torch.cuda.{name}": legacy_type(mode, name) for name in _DTYPES}
    return table | {
        "torch.set_default_tensor_type": set_default_tensor_type,
        "torch.Tensor.__new__": new_tensor,
    }
