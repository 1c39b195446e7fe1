"""What an operation asks the simulated allocator for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import memlens
from memlens.model import Alloc


def asked(
    operation: Callable[..., Any],
    *shapes: tuple[int, ...],
    dtype: torch.dtype = torch.float32,
    gpu: str = "A100 40GB",
    requires_grad: bool = False,
) -> list[int]:
    """Bytes asked for while `operation` runs on device tensors of these shapes, in order."""
    with memlens.simulate(gpu=gpu) as sim:
        inputs = [torch.empty(s, dtype=dtype, device="cuda", requires_grad=requires_grad) for s in shapes]
        return asked_in(sim, lambda: operation(*inputs))


def asked_in(sim: Any, operation: Callable[[], Any]) -> list[int]:
    """The same inside a simulation that runs already."""
    before = len(sim.events)
    kept = operation()
    found = [event.requested for event in sim.events[before:] if isinstance(event, Alloc)]
    del kept
    return found
