"""A request for memory that failed: the numbers, who held memory, and what would help."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from memlens.model.category import Category
from memlens.model.gap import Gap
from memlens.model.tensors import TensorGroup


@dataclass(frozen=True, slots=True)
class OomHint:
    """A change that is not made yet; `saves_bytes` is at most what it saves, None where that is not known."""

    text: str
    saves_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class PoolState:
    """The free memory of one of the allocator's pools."""

    pool: str
    reserved_bytes: int
    free_bytes: int
    largest_free_bytes: int


@dataclass(frozen=True, slots=True)
class Failure:
    """One out-of-memory error. A figure that the device does not tell is None.

    `where` is the user's line, `module` the path of the module whose forward ran. `lines` and `modules` are
    (name, bytes) of the biggest holders, from the recorded history; `tensors` from the tensors alive.
    """

    device: str
    asked_bytes: int | None
    free_bytes: int | None = None
    total_bytes: int | None = None
    allocated_bytes: int | None = None
    reserved_bytes: int | None = None
    where: str = ""
    module: str | None = None
    cause: str = ""
    by_category: dict[Category, int] = field(default_factory=dict)
    tensors: tuple[TensorGroup, ...] = ()
    lines: tuple[tuple[str, int], ...] = ()
    modules: tuple[tuple[str, int], ...] = ()
    pools: tuple[PoolState, ...] = ()
    gap: Gap | None = None
    advice: tuple[OomHint, ...] = ()
    record: str = ""
    unsaved: str = ""  # why there is no record, or why it is elsewhere

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON types, schema `memlens.oom/1`."""
        names = ("device", "asked_bytes", "free_bytes", "total_bytes", "allocated_bytes", "reserved_bytes")
        return {
            "schema": "memlens.oom/1",
            **{name: getattr(self, name) for name in names},
            "where": self.where,
            "module": self.module,
            "cause": self.cause,
            "by_category": {category.value: size for category, size in self.by_category.items()},
            "tensors": [group.to_dict() for group in self.tensors],
            "lines": [{"line": name, "bytes": size} for name, size in self.lines],
            "modules": [{"module": name, "bytes": size} for name, size in self.modules],
            "advice": [{"text": item.text, "saves_bytes": item.saves_bytes} for item in self.advice],
            "record": self.record,
            "unsaved": self.unsaved,
        }
