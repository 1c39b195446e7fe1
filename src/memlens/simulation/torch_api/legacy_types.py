"""`torch.cuda.FloatTensor` and its kin: device and dtype in one, PyTorch's way before 0.4, still in use."""

from __future__ import annotations

from collections.abc import Sequence
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

    def __call__(cls, *args: Any, device: Any = None) -> Any:
        if len(args) == 1 and isinstance(args[0], Sequence) and not isinstance(args[0], torch.Size):
            return torch.tensor(args[0], dtype=cls.dtype, device="cuda")
        if len(args) == 1 and isinstance(args[0], Tensor):
            return args[0].to("cuda", cls.dtype)
        return torch.empty(*(args or (0,)), dtype=cls.dtype, device="cuda")

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor) and instance.is_cuda and instance.dtype is cls.dtype


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


def legacy_type(name: str) -> LegacyType:
    return LegacyType(name, (), {"dtype": _DTYPES[name], "__module__": "torch.cuda"})


def replacements(mode: DeviceMode) -> dict[str, Any]:
    """Dotted names and their stand-ins."""
    before = torch.set_default_tensor_type

    def set_default_tensor_type(wanted: Any) -> None:
        """With `"torch.cuda.FloatTensor"` factories make CUDA tensors from now on."""
        name = name_of(wanted)
        mode.default = torch.device("cuda", 0) if name.startswith("torch.cuda.") else None
        before(name.replace("torch.cuda.", "torch."))

    table: dict[str, Any] = {f"torch.cuda.{name}": legacy_type(name) for name in _DTYPES}
    return table | {"torch.set_default_tensor_type": set_default_tensor_type}
