"""What a byte is for: the categories that a peak is broken down into."""

from __future__ import annotations

from enum import StrEnum


class Category(StrEnum):
    """What an allocation holds. The value is its key in JSON; `label` is what people read."""

    PARAMETER = "parameters"
    BUFFER = "buffers"
    GRADIENT = "gradients"
    OPTIMIZER_STATE = "optimizer_state"
    ACTIVATION = "activations"  # kept for backward
    INPUT = "inputs"
    TEMPORARY = "temporaries"
    WORKSPACE = "workspace"  # cuBLAS, cuDNN: scratch memory of libraries, inside the allocator
    COMMUNICATION = "communication"  # buckets and buffers of distributed training
    UNKNOWN = "unknown"
    FRAGMENTATION = "fragmentation"  # reserved by the allocator, used by no tensor
    CONTEXT = "context"  # CUDA context and loaded kernels, outside the allocator

    @property
    def label(self) -> str:
        """The words for people: `optimizer state`, `activations kept for backward`."""
        return _LABELS.get(self, self.value)


_LABELS = {
    Category.OPTIMIZER_STATE: "optimizer state",
    Category.ACTIVATION: "activations",
    Category.WORKSPACE: "library workspaces",
    Category.FRAGMENTATION: "reserved, unused",
    Category.CONTEXT: "CUDA context",
}
