"""From the tensors to what nvidia-smi shows: the parts between, which sum to the driver's figure.

>>> gap = Gap(100, 12, 20, 0, 68, used_bytes=500, process_bytes=300)
>>> [part.label for part in gap.parts()]
['tensors', 'rounded up to blocks', 'library workspaces', 'cached, unused', 'CUDA context', 'other processes']
>>> sum(part.bytes for part in gap.parts())
500
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple


class Part(NamedTuple):
    """One part of what the driver shows."""

    key: str
    label: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Gap:
    """What PyTorch's allocator holds, by use, next to what the driver reports.

    `unseen_bytes` are allocated and belong to no tensor that Python or autograd can reach (buckets and
    scratch of C++ code). `used_bytes` is the driver's figure for the whole card, `process_bytes` for this
    process: None where it will not say, and `reason` tells why.
    """

    tensor_bytes: int
    rounding_bytes: int
    workspace_bytes: int
    unseen_bytes: int
    cached_bytes: int
    used_bytes: int | None = None
    process_bytes: int | None = None
    reason: str = ""
    workspaces: tuple[str, ...] = ()  # such as "2 cuBLAS workspaces of 8,519,680 B"

    @property
    def reserved_bytes(self) -> int:
        """What PyTorch took from the driver: all parts but the last two."""
        inside = self.tensor_bytes + self.rounding_bytes + self.workspace_bytes
        return inside + self.unseen_bytes + self.cached_bytes

    @property
    def context_bytes(self) -> int | None:
        """CUDA context and loaded kernels: the process without what PyTorch reserved."""
        return None if self.process_bytes is None else self.process_bytes - self.reserved_bytes

    @property
    def other_bytes(self) -> int | None:
        """Other processes; with this one's context where the driver does not tell processes apart."""
        if self.used_bytes is None:
            return None
        return self.used_bytes - (self.reserved_bytes if self.process_bytes is None else self.process_bytes)

    def parts(self) -> list[Part]:
        """Every part that is known; they sum to `used_bytes`, or to what is reserved where that is None."""
        parts = [
            Part("tensors", "tensors", self.tensor_bytes),
            Part("rounding", "rounded up to blocks", self.rounding_bytes),
            Part("workspace", "library workspaces", self.workspace_bytes),
            Part("unseen", "held by no tensor in sight", self.unseen_bytes),
            Part("cached", "cached, unused", self.cached_bytes),
        ]
        parts = [part for part in parts if part.bytes or part.key == "tensors"]
        if self.context_bytes is not None:
            parts.append(Part("context", "CUDA context", self.context_bytes))
        if self.other_bytes is not None:
            together = "context and other processes" if self.process_bytes is None else "other processes"
            parts.append(Part("other", together, self.other_bytes))
        return parts

    def to_dict(self) -> dict[str, Any]:
        """Everything as JSON types, with the parts that the figures come to."""
        more = {"reserved_bytes": self.reserved_bytes, "context_bytes": self.context_bytes}
        return asdict(self) | more | {"other_bytes": self.other_bytes}
