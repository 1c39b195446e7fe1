"""The tensors alive at one moment, and what changed since the last: plain data.

>>> weight = LiveTensor(1, 4096, (32, 32), "float32", Category.PARAMETER, "layers.3.weight")
>>> look = TensorReport("cpu", "train.py", 12, "step", came=group([weight]), tensor_bytes=4096)
>>> [(row.count, row.shape, row.bytes) for row in look.came]
[(1, (32, 32), 4096)]
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from memlens.model.category import Category
from memlens.model.gap import Gap

# what people call a category of live tensors; the others keep their label
KINDS = {
    Category.PARAMETER: "parameter",
    Category.BUFFER: "buffer",
    Category.GRADIENT: "gradient",
    Category.OPTIMIZER_STATE: "optimizer state",
    Category.ACTIVATION: "kept for backward",
    Category.UNKNOWN: "tensor",
}


@dataclass(slots=True)
class LiveTensor:
    """One storage, counted once however many tensors show it.

    `shape` and `dtype` are those of a tensor that shows all of it, where one was seen; else `view` says that
    `shape` is only a part of the storage's `bytes`. `key` tells storages apart while they live.
    """

    key: int
    bytes: int
    shape: tuple[int, ...]
    dtype: str
    category: Category = Category.UNKNOWN
    name: str = ""
    view: bool = False


class Living(Protocol):
    """What tells the same of a storage as a `LiveTensor` does."""

    bytes: int
    shape: tuple[int, ...]
    dtype: str
    category: Category
    name: str
    view: bool


@dataclass(frozen=True, slots=True)
class TensorGroup:
    """Storages of one shape, dtype and kind."""

    count: int
    shape: tuple[int, ...]
    dtype: str
    category: Category
    bytes: int
    view: bool = False
    names: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """What people call it: `parameter`, `kept for backward`, `tensor`."""
        return KINDS.get(self.category, self.category.label)

    def to_dict(self) -> dict[str, Any]:
        return {
            "count": self.count,
            "shape": list(self.shape),
            "dtype": self.dtype,
            "category": self.category.value,
            "bytes": self.bytes,
            "view": self.view,
            "names": list(self.names),
        }


def group(tensors: Iterable[Living]) -> tuple[TensorGroup, ...]:
    """Tensors by shape, dtype and kind, the largest group first."""
    groups: dict[tuple[Any, ...], list[Living]] = {}
    for tensor in tensors:
        key = tensor.shape, tensor.dtype, tensor.category, tensor.view
        groups.setdefault(key, []).append(tensor)
    rows = [
        TensorGroup(
            len(members),
            tuple(shape),
            dtype,
            category,
            sum(member.bytes for member in members),
            view,
            tuple(sorted({member.name for member in members if member.name})),
        )
        for (shape, dtype, category, view), members in groups.items()
    ]
    return tuple(sorted(rows, key=lambda row: -row.bytes))


@dataclass(frozen=True, slots=True)
class TensorReport:
    """One `track()`: where it was called, what is alive, what came and went since the call before.

    `allocated_bytes` and `peak_bytes` are the device allocator's figures, None where it keeps none (CPU);
    `gap` leads from the tensors to what the driver shows, None on the CPU.
    """

    device: str
    file: str
    line: int
    function: str
    came: tuple[TensorGroup, ...] = ()
    gone: tuple[TensorGroup, ...] = ()
    tensor_bytes: int = 0
    tensors: int = 0
    by_category: dict[Category, int] = field(default_factory=dict)
    allocated_bytes: int | None = None
    peak_bytes: int | None = None
    gap: Gap | None = None
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON types, schema `memlens.look/1`."""
        return {
            "schema": "memlens.look/1",
            "device": self.device,
            "file": self.file,
            "line": self.line,
            "function": self.function,
            "came": [row.to_dict() for row in self.came],
            "gone": [row.to_dict() for row in self.gone],
            "tensor_bytes": self.tensor_bytes,
            "tensors": self.tensors,
            "by_category": {category.value: size for category, size in self.by_category.items()},
            "allocated_bytes": self.allocated_bytes,
            "peak_bytes": self.peak_bytes,
            "gap": self.gap.to_dict() if self.gap else None,
            "note": self.note,
        }
