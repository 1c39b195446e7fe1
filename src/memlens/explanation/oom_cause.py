"""Why a recording ran out of memory, in numbers, and what would have helped."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from memlens.allocator.config import AllocatorConfig
from memlens.allocator.replay import replay, verify
from memlens.allocator.rules import SMALL_BYTES, round_request, segment_bytes
from memlens.explanation.fragmentation import PoolUse, pool_use
from memlens.model import Alloc, Free, OutOfMemory, SegmentFree, Trace
from memlens.units import format_bytes


@dataclass(frozen=True, slots=True)
class Cause:
    """One request that failed. `fragmented`: the bytes were there, and no free piece was large enough.

    `segment_bytes` is what PyTorch asks the driver for at once to serve such a request.
    `expandable_fits` says whether the same requests fit under expandable segments, by replay; None where
    they are on already, or where the recording does not start at the beginning.
    """

    event: OutOfMemory
    index: int
    allocated_bytes: int
    reserved_bytes: int
    use: PoolUse
    fragmented: bool
    expandable_fits: bool | None
    segment_bytes: int = 0

    @property
    def missing_bytes(self) -> int:
        """How much more would have had to be free, were all free memory one piece."""
        return max(self.event.bytes - self.event.free_bytes - self.use.free_bytes, 0)

    def to_dict(self, first_event: int = 0) -> dict[str, Any]:
        """A row of `out_of_memory` in `memlens snapshot --json`; events count from `first_event`."""
        return {
            "event": self.index - first_event,
            "requested_bytes": self.event.bytes,
            "free_bytes": self.event.free_bytes,
            "allocated_bytes": self.allocated_bytes,
            "reserved_bytes": self.reserved_bytes,
            "fragmented": self.fragmented,
            "expandable_segments_fits": self.expandable_fits,
            "cause": self.text(),
        }

    def text(self) -> str:
        """The cause in one paragraph."""
        event, use = self.event, self.use
        place = f" at {event.site.where}" if event.site.where else ""
        sentences = [
            f"A request of {format_bytes(event.bytes)}{place} failed with {format_bytes(event.free_bytes)} "
            f"left on the device.",
            f"PyTorch held {format_bytes(self.reserved_bytes)}, {format_bytes(self.allocated_bytes)} of it "
            f"allocated; {format_bytes(use.free_bytes)} of the {use.pool} pool lay free, the largest piece "
            f"{format_bytes(use.largest_free_bytes)}.",
        ]
        if event.bytes <= event.free_bytes:
            sentences.append(
                f"For a request of this size PyTorch takes {format_bytes(self.segment_bytes)} at once, "
                "which the device had not left."
            )
        elif self.fragmented:
            sentences.append("There was enough memory, in pieces too small: this is fragmentation.")
        else:
            missing = format_bytes(self.missing_bytes)
            sentences.append(f"Even in one piece that is {missing} too little: the device is full.")
        if self.expandable_fits:
            sentences.append(
                "Replayed with expandable_segments:True, the same requests fit in the same memory."
            )
        elif self.expandable_fits is False:
            sentences.append("Replayed with expandable_segments:True, they do not fit either.")
        return " ".join(sentences)


def causes(trace: Trace, config: AllocatorConfig, most: int = 3) -> list[Cause]:
    """The last `most` requests that failed in `trace`, a recording with addresses; each costs two replays."""
    failed = [(index, event) for index, event in enumerate(trace.events) if isinstance(event, OutOfMemory)]
    return [_cause(trace, config, index, event) for index, event in failed[-most:]]


def _cause(trace: Trace, config: AllocatorConfig, index: int, event: OutOfMemory) -> Cause:
    until = trace_before(trace, index)
    state = verify(until, config)
    small, large = pool_use(state.segments)
    use = small if event.bytes <= SMALL_BYTES else large
    reserved = state.replayed_reserved_bytes
    return Cause(
        event=event,
        index=index,
        allocated_bytes=state.trace.breakdown(index - 1).allocated_bytes,
        reserved_bytes=reserved,
        use=use,
        fragmented=event.free_bytes < event.bytes <= event.free_bytes + use.free_bytes,
        expandable_fits=_fits_expandable(until, config, event, reserved),
        segment_bytes=segment_bytes(round_request(event.bytes, config), config),
    )


def trace_before(trace: Trace, index: int) -> Trace:
    """The first `index` events of `trace`, as a Trace of its own."""
    marks = [mark for mark in trace.marks if mark.index <= index]
    return replace(trace, events=trace.events[:index], marks=marks)


def _fits_expandable(trace: Trace, config: AllocatorConfig, event: OutOfMemory, reserved: int) -> bool | None:
    if config.expandable_segments or not trace.metadata.get("complete"):
        return None
    request = Alloc(-1, event.bytes, site=event.site, requested=event.bytes)
    # what a retry gave back before it failed is no call of empty_cache, and earlier failures are not asked
    kept = [e for e in trace.events if not isinstance(e, SegmentFree | OutOfMemory)]
    again = replace(trace, events=[*kept, request, Free(-1)], marks=[])
    placed = replay(again, replace(config, expandable_segments=True), reserved + event.free_bytes)
    return not isinstance(placed.events[-1], OutOfMemory)
