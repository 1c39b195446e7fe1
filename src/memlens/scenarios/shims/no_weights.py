"""In place of a checkpoint that is not there: nothing in it matters for memory, as long as it is weights."""

from __future__ import annotations

import dis
import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

from memlens.errors import TargetError

# parts that are there, beside those that end in state
_PARTS = ("model", "weights")
USED_AS_DATA = TargetError(
    "a file that is not there is used as data or as a whole model, and --synthetic makes up weights only",
    hint="put it there, or a small one of the same shape",
)


def refuse(*_: Any) -> Any:
    """Sizes decide about memory, and of data they are not known."""
    raise USED_AS_DATA


def is_about_data(error: BaseException) -> bool:
    """Whether torch or NumPy say in their own words that they got none."""
    return isinstance(error, (TypeError, RuntimeError)) and bool(re.search("NoWeights|NoPart", str(error)))


class NoWeights(dict[str, Any]):
    """Every model accepts it, and every part of it. What only data can do ends in one line."""

    was_made = False  # in this process

    def __init__(self) -> None:
        super().__init__()
        NoWeights.was_made = True

    def __missing__(self, key: Any) -> NoPart:
        return NoPart() if isinstance(key, str) else refuse()

    def __getitem__(self, key: Any) -> Any:
        return refuse() if isinstance(key, (slice, tuple)) else super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        return NoPart()

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and ("state" in key or key in _PARTS)

    def __bool__(self) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        """Keys may be looked at one after the other; `images, labels = ...` are no keys."""
        frame = sys._getframe(1)
        instruction = frame.f_code.co_code[frame.f_lasti]
        return refuse() if dis.opname[instruction].startswith("UNPACK") else iter(())

    def __getattr__(self, name: str) -> Any:
        is_tensors = hasattr(torch.Tensor, name) or (hasattr(torch.nn.Module, name) and "state" not in name)
        if is_tensors and not name.startswith("_"):
            refuse()
        raise AttributeError(name)

    __len__ = __call__ = __array__ = refuse


def _as_zero(name: str) -> Callable[..., Any]:
    def operation(self: Any, *others: Any) -> Any:
        return getattr(0.0, name)(*others) if others else getattr(0, name)()

    return operation


class NoPart(NoWeights):
    """A part of a checkpoint: weights again, or the number of an epoch, which is 0 then."""

    def __add__(self, other: int) -> int:
        return 0 + other

    __radd__ = __add__
    __index__, __int__, __float__ = _as_zero("__int__"), _as_zero("__int__"), _as_zero("__float__")
    __lt__, __le__, __gt__, __ge__ = (_as_zero(f"__{name}__") for name in ("lt", "le", "gt", "ge"))
