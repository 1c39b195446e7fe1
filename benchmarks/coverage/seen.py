"""What is seen of one run, on either side."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from memlens.simulation.core.sparse import is_sparse, parts_of

# numbers that the CPU wraps in a tensor and CUDA passes as an argument: at most one complex128
SCALAR_BYTES = 16


class Description(NamedTuple):
    """A tensor's metadata. `device` is "here" on the device that the program was given."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    device: str
    storage_bytes: int
    requires_grad: bool


@dataclass
class Seen:
    """One run: its tensors by name, its peak, or the error that it ended with."""

    tensors: dict[str, Description | str] = field(default_factory=dict)
    peak_bytes: int = 0
    error: str = ""
    refused: bool = False  # memlens said so, in its own words
    kernels: set[str] = field(default_factory=set)  # operators that ran on the simulated device
    uncounted: list[str] = field(default_factory=list)
    assumptions: list[str] = field(default_factory=list)


def describe(results: dict[str, Any], device: str) -> dict[str, Description | str]:
    """The metadata of every tensor in `results`; of anything else its type."""
    seen: dict[str, Description | str] = {}
    for name, value in results.items():
        leaves = pytree.tree_leaves(value)
        for index, leaf in enumerate(leaves):
            key = name if len(leaves) == 1 else f"{name}.{index}"
            seen[key] = _of(leaf, device) if isinstance(leaf, Tensor) else type(leaf).__name__
    return seen


def _of(tensor: Tensor, device: str) -> Description:
    try:
        storage_bytes = sum(part.untyped_storage().nbytes() for part in storages_of(tensor))
        stride = tuple(tensor.stride()) if tensor.layout is torch.strided else ()
    except (NotImplementedError, RuntimeError):  # torch.func's wrappers: they have none of their own
        storage_bytes, stride = 0, ()
    here = "here" if tensor.device.type == device else str(tensor.device)
    return Description(
        tuple(tensor.shape), stride, str(tensor.dtype), here, storage_bytes, tensor.requires_grad
    )


def storages_of(tensor: Tensor) -> tuple[Tensor, ...]:
    """The tensors that hold the bytes: of a sparse one its indices and values."""
    return parts_of(tensor) if is_sparse(tensor) else (tensor,)


def one_line(error: BaseException) -> str:
    """The kind and the first line of an error, and where an error of our own arose."""
    lines = str(error).strip().splitlines() or [""]
    where = ""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if "/memlens/" in f.filename]
    if frames and isinstance(error, (AttributeError, TypeError, KeyError, AssertionError, ValueError)):
        where = f" ({frames[-1].filename.partition('/memlens/')[2]}:{frames[-1].lineno})"
    message = re.sub(r" at \S+\.py:\d+", "", lines[0])[:200]  # the line of this benchmark
    return f"{type(error).__name__}: {message}{where}"
