"""`torch.device(0)`: a card by its number, also where torch was built without CUDA and refuses it."""

from __future__ import annotations

from typing import Any

import torch

_DEVICE = torch.device


class _Kind(type):
    def __instancecheck__(cls, value: object) -> bool:
        return isinstance(value, _DEVICE)


class NumberedDevice(metaclass=_Kind):
    """Stands for `torch.device`: makes real devices, and every real device is one of it."""

    def __new__(cls, type: Any = None, index: int | None = None) -> torch.device:  # type: ignore[misc]
        if isinstance(type, int) and not isinstance(type, bool):
            return _DEVICE("cuda", type)
        return _DEVICE(type) if index is None else _DEVICE(type, index)


def replacements() -> dict[str, Any]:
    """Nothing where torch takes a number by itself."""
    try:
        torch.device(0)
    except RuntimeError:
        return {"torch.device": NumberedDevice}
    return {}
