"""Who wants to know when a simulated card is full, as CUDA's own observers do of a real one.

An observer is called before `torch.OutOfMemoryError` is raised, with the device's number, the bytes that
were asked for, the card's memory and what was free, as `torch._C._cuda_attach_out_of_memory_observer` does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Observer: TypeAlias = Callable[[int, int, int, int], object]
OBSERVERS: list[Observer] = []


def device_is_full(device: int, asked_bytes: int, total_bytes: int, free_bytes: int) -> None:
    """Call every observer."""
    for observer in tuple(OBSERVERS):
        observer(device, asked_bytes, total_bytes, free_bytes)
