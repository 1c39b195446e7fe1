"""A card that is nearly full: the allocator gives cached memory back before it gives up.

On a device that never fills, reserved memory grows with every shape that does not fit into what is cached.
The real allocator, when the driver refuses a segment, releases what no tensor uses and tries again: the run
is slower and fits. So a run whose reserved peak is above the card is replayed on a card of that size.
"""

from __future__ import annotations

from memlens.allocator import AllocatorConfig, replay
from memlens.devices import Gpu
from memlens.model import Assumption, OutOfMemory, SegmentFree, Trace


def usable_bytes(gpu: Gpu) -> int:
    """Bytes that the allocator may take: the card's memory less its context."""
    return gpu.memory_bytes - gpu.context_bytes[1]


def has_less_than(gpu: Gpu, reserved_bytes: int) -> bool:
    return reserved_bytes > usable_bytes(gpu)


def on_a_full_card(trace: Trace, gpu: Gpu, config: AllocatorConfig) -> Trace | None:
    """`trace` as it runs on a card of this size; None if it runs out of memory all the same."""
    if usable_bytes(gpu) <= 0:
        return None
    squeezed = replay(trace, config, usable_bytes(gpu), total_bytes=gpu.memory_bytes)
    if any(isinstance(event, OutOfMemory) for event in squeezed.events):
        return None
    times = _count_freed_segments(squeezed) - _count_freed_segments(trace)
    squeezed.assumptions = [
        *trace.assumptions,
        Assumption(
            f"it fits because the allocator gives cached memory back to the driver ({times} segments)",
            "without that it would reserve more than the card has; each time the card waits for all its "
            "work, so steps are slower, and a little more memory elsewhere makes it fail",
        ),
    ]
    return squeezed


def _count_freed_segments(trace: Trace) -> int:
    return sum(isinstance(event, SegmentFree) for event in trace.events)
