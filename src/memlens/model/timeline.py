"""Memory over the course of a trace: one point an event."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass

from memlens.model.events import Alloc, Event, Free, SegmentAlloc, SegmentFree


@dataclass(frozen=True, slots=True)
class Timeline:
    """`allocated[i]` and `reserved[i]` are bytes after event number i; reserved is empty without segments."""

    allocated: array[int]
    reserved: array[int]
    baseline_allocated_bytes: int = 0

    @property
    def peak_index(self) -> int:
        """The number of the first event after which allocated memory is highest; -1 in an empty trace."""
        if not self.allocated:
            return -1
        return self.allocated.index(max(self.allocated))

    @property
    def peak_allocated_bytes(self) -> int:
        return max(self.allocated, default=self.baseline_allocated_bytes)

    @property
    def peak_reserved_bytes(self) -> int:
        return max(self.reserved, default=0)

    def peak_between(self, start: int, end: int) -> tuple[int, int]:
        """(allocated, reserved) at their highest in events start..end-1, the state before them included."""
        before = max(start - 1, 0)
        allocated = self.allocated[before:end] if self.allocated else []
        reserved = self.reserved[before:end] if self.reserved else []
        return max(allocated, default=self.baseline_allocated_bytes), max(reserved, default=0)


def build_timeline(events: Iterable[Event], allocated_bytes: int = 0, reserved_bytes: int = 0) -> Timeline:
    """Walk the events once, adding up from what was allocated and reserved before the first."""
    sizes: dict[int, int] = {}
    allocated, reserved = array("q"), array("q")
    current, held = allocated_bytes, reserved_bytes
    has_segments = False
    for event in events:
        if isinstance(event, Alloc):
            sizes[event.id] = event.bytes
            current += event.bytes
        elif isinstance(event, Free):
            current -= sizes.pop(event.id)
        elif isinstance(event, SegmentAlloc):
            held += event.bytes
            has_segments = True
        elif isinstance(event, SegmentFree):
            held -= event.bytes
            has_segments = True
        allocated.append(current)
        reserved.append(held)
    return Timeline(allocated, reserved if has_segments or held else array("q"), allocated_bytes)
