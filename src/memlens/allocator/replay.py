"""Traces through the allocator: placed where they have no addresses yet, checked where they have."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from memlens.allocator import release, rules
from memlens.allocator.blocks import Block, SegmentView
from memlens.allocator.config import AllocatorConfig, to_snapshot
from memlens.allocator.oom import DeviceFull
from memlens.allocator.restore import restore
from memlens.allocator.simulator import CachingAllocator
from memlens.allocator.state import SegmentCallback
from memlens.model import Alloc, Event, Free, Mark, OutOfMemory, SegmentAlloc, SegmentFree, Trace


def replay(
    trace: Trace,
    config: AllocatorConfig | None = None,
    capacity_bytes: int | None = None,
    *,
    total_bytes: int | None = None,
) -> Trace:
    """`trace` as the allocator would have placed it under `config`: block sizes, addresses, segments.

    The segments that the trace had are replaced; where it gave some back by itself (`empty_cache`), so does
    the replay. On a device of `capacity_bytes` the new trace may end early, with an `OutOfMemory` event.

    >>> placed = replay(Trace("predicted", [Alloc(1, 1000), Free(1), Alloc(2, 600)]))
    >>> [type(event).__name__ for event in placed.events]
    ['SegmentAlloc', 'Alloc', 'Free', 'Alloc']
    """
    events: list[Event] = []
    moved: list[int] = []  # old event number -> new
    allocator = CachingAllocator(
        config, capacity_bytes, total_bytes=total_bytes, on_segment=_build_writer(events)
    )
    blocks: dict[int, Block] = {}
    for number, event in enumerate(trace.events):
        moved.append(len(events))
        match event:
            case Alloc():
                try:
                    blocks[event.id] = block = allocator.malloc(event.requested or event.bytes, event.stream)
                except DeviceFull as full:
                    events.append(OutOfMemory(full.asked_bytes, full.free_bytes, event.site, event.time_us))
                    break
                events.append(_with_block(event, block))
            case Free():
                allocator.free(blocks.pop(event.id))
                events.append(event)
            case SegmentAlloc():
                pass
            case SegmentFree():
                if is_empty_cache(trace.events, number):
                    allocator.empty_cache()
            case _:
                events.append(event)
    moved += [len(events)] * (len(trace.events) + 1 - len(moved))
    return Trace(
        trace.origin,
        events,
        trace.device,
        [Mark(mark.name, moved[mark.index], mark.step, mark.time_us) for mark in trace.marks],
        trace.metadata
        | {"complete": True, "baseline_events": 0, "allocator_settings": to_snapshot(allocator.config)},
        trace.assumptions,
        trace.processes,
    )


@dataclass(frozen=True, slots=True)
class Verification:
    """A recording against the rules.

    `trace` is the recording with the block sizes that the rules give (as recorded, where addresses differ);
    `segments` is the state after its last event.
    """

    allocations: int
    address_mismatches: int
    segment_mismatches: int
    recorded_reserved_bytes: int
    replayed_reserved_bytes: int
    complete: bool
    trace: Trace
    segments: list[SegmentView]

    @property
    def agrees(self) -> bool:
        return not self.address_mismatches and not self.segment_mismatches

    def to_dict(self) -> dict[str, int | bool]:
        """`replay` of `memlens snapshot --replay --json`."""
        return {
            "allocations": self.allocations,
            "address_mismatches": self.address_mismatches,
            "segment_mismatches": self.segment_mismatches,
            "recorded_reserved_bytes": self.recorded_reserved_bytes,
            "replayed_reserved_bytes": self.replayed_reserved_bytes,
            "complete": self.complete,
        }


def verify(trace: Trace, config: AllocatorConfig | None = None) -> Verification:
    """Replay a recording that has addresses, and count what comes out differently.

    A recording from the middle of a run starts from the state that it found (`metadata["baseline_events"]`);
    memory that it gave back to the driver is given back. A segment mismatch is one that was taken where the
    rules take none, or another size, or the reverse, or given back while in use.
    """
    return _Follower(trace, config or AllocatorConfig()).run()


class _Follower:
    def __init__(self, trace: Trace, config: AllocatorConfig) -> None:
        self.trace = trace
        self.baseline = trace.metadata.get("baseline_events", 0)
        later = trace.events[self.baseline :]
        self.recorded = deque(event for event in later if isinstance(event, SegmentAlloc))
        self.due = 0  # recorded segments whose event was passed, and that the replay has not taken
        self.segment_mismatches = self.address_mismatches = self.allocations = 0
        self.allocator = CachingAllocator(config, addresses=self._next_address)
        self.blocks: dict[int, Block] = {}

    def run(self) -> Verification:
        first = self.trace.events[: self.baseline]
        segments = [event for event in first if isinstance(event, SegmentAlloc)]
        allocations = [self._with_rounded_bytes(event) for event in first if isinstance(event, Alloc)]
        sized = _with_rests(allocations, segments, self.trace.events[self.baseline :])
        self.blocks = restore(self.allocator, segments, sized, self.recorded)
        self.allocator.on_segment = self._check_segment
        events = [self._with_true_bytes(event) for event in first]
        events += [self._follow(event) for event in self.trace.events[self.baseline :]]
        reserved = self.trace.timeline().reserved
        settled = self.trace
        if not self.address_mismatches:
            settled = Trace(
                self.trace.origin, events, self.trace.device, self.trace.marks, self.trace.metadata,
                self.trace.assumptions, self.trace.processes,
            )  # fmt: skip
        return Verification(
            self.allocations,
            self.address_mismatches,
            self.segment_mismatches + abs(self.due),
            reserved[-1] if reserved else 0,
            self.allocator.reserved_bytes,
            not self.baseline,
            settled,
            self.allocator.snapshot_segments(),
        )

    def _with_rounded_bytes(self, event: Alloc) -> Alloc:
        """An allocation at the start with the block that its request got at least."""
        size = rules.round_request(event.requested or event.bytes, self.allocator.config)
        return event if event.bytes >= size else replace(event, bytes=size)

    def _with_true_bytes(self, event: Event) -> Event:
        """An event of the state at the start, with the block's true size."""
        if isinstance(event, Alloc) and event.id in self.blocks:
            return _with_block(event, self.blocks[event.id])
        return event

    def _follow(self, event: Event) -> Event:
        match event:
            case Alloc():
                self.allocations += 1
                block = self.allocator.malloc(event.requested or event.bytes, event.stream)
                self.blocks[event.id] = block
                self.address_mismatches += block.address != event.address
                return _with_block(event, block)
            case Free():
                freed = self.blocks.pop(event.id, None)
                if freed is not None:
                    self.allocator.free(freed)
            case SegmentAlloc():
                self.due += 1
            case SegmentFree():
                self.segment_mismatches += not _give_back(self.allocator, event)
        return event

    def _next_address(self, size: int, stream: int, small: bool) -> int:
        """The address of the next recorded segment; above every real address once none is left."""
        return self.recorded[0].address if self.recorded else (1 << 48) + self.allocator.reserved_bytes

    def _check_segment(self, kind: str, address: int, size: int, stream: int, small: bool) -> None:
        if kind in ("alloc", "map"):
            self.due -= 1
            recorded = self.recorded.popleft() if self.recorded else None
            self.segment_mismatches += recorded is None or (recorded.address, recorded.bytes) != (
                address,
                size,
            )


def _with_rests(allocations: list[Alloc], segments: list[SegmentAlloc], later: list[Event]) -> list[Alloc]:
    """`allocations`, each with the remainder of its block where a later event shows it.

    A request is always cut from the front of a free block. So the first one behind a living allocation
    starts where that one's block ends, up to 1 MiB after what it is known to have been given.
    """
    # the start of a segment ends the reach of what is before it; small blocks are given no rests
    living: dict[int, Alloc | None] = {segment.address: None for segment in segments}
    living |= {alloc.address or 0: alloc for alloc in allocations}
    starts = sorted(living)
    ends: dict[int, int] = {}
    gone = {alloc.id: alloc.address or 0 for alloc in allocations}
    for event in later:
        if isinstance(event, Free) and event.id in gone:
            address = gone.pop(event.id)
            if address in living:  # unless its end is known already
                del living[address]
                del starts[bisect_left(starts, address)]
        elif isinstance(event, Alloc):
            index = bisect_right(starts, event.address or 0) - 1
            before = living[starts[index]] if index >= 0 else None
            if before is not None:
                del living[starts.pop(index)]
                end = (before.address or 0) + before.bytes
                if 0 <= (event.address or 0) - end <= rules.SMALL_BYTES < before.bytes:
                    ends[before.id] = event.address or 0
    return [
        replace(alloc, bytes=ends[alloc.id] - (alloc.address or 0)) if alloc.id in ends else alloc
        for alloc in allocations
    ]


def _give_back(allocator: CachingAllocator, event: SegmentFree) -> bool:
    """Release the free block that the recording released; whether there is one."""
    for small in (False, True):
        for pool in allocator.pools(small):
            for block in pool.free_blocks():
                if block.address <= event.address < block.address + block.size:
                    return release.release(allocator, block) == event.bytes
    return False


def _with_block(event: Alloc, block: Block) -> Alloc:
    """A copy of `event` as its block has it."""
    requested = event.requested or event.bytes
    return Alloc(
        event.id,
        block.size,
        event.category,
        event.site,
        event.stream,
        requested,
        block.address,
        event.time_us,
    )


def _build_writer(events: list[Event]) -> SegmentCallback:
    def write(kind: str, address: int, size: int, stream: int, small: bool) -> None:
        if kind in ("alloc", "map"):
            events.append(SegmentAlloc(address, size, stream, small))
        else:
            events.append(SegmentFree(address, size))

    return write


def is_empty_cache(events: Sequence[Event], number: int) -> bool:
    """Whether segments were given back by a call: not to make room for a new one, and once a row."""
    following = events[number + 1] if number + 1 < len(events) else None
    return not isinstance(following, SegmentAlloc | SegmentFree)
