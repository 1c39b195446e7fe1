"""From a snapshot's dicts to events: forwards as recorded, after a walk backwards to the start."""

from __future__ import annotations

from typing import Any, NamedTuple

from memlens.model import (
    Alloc,
    Assumption,
    Category,
    Device,
    Event,
    Free,
    Mark,
    OutOfMemory,
    Provenance,
    SegmentAlloc,
    SegmentFree,
    Site,
    Trace,
)
from memlens.model.address_ranges import SegmentRanges, cut
from memlens.records.inference import infer_categories
from memlens.records.snapshot_writer import read_note
from memlens.records.stacks import Stacks

BEFORE, RECORDED = "before the recording", "recording"  # the two marks of a recording from mid-process
_MIN_BLOCK_BYTES = 512  # kMinBlockSize in c10/core/AllocatorConfig.h: what a request is rounded up to
_SMALL_SEGMENT_BYTES = 2 << 20  # kSmallBuffer there
_LARGE_SEGMENT_BYTES = 20 << 20  # large_segment_size_ there, the page of large expandable segments
_LARGEST = 1 << 62
_LARGEST_SIZE = 1 << 40  # 1 TiB; the largest GPU has 288 GB
_TAKES = ("segment_alloc", "segment_map")
_GIVES = ("segment_free", "segment_unmap")


class Held(NamedTuple):
    """An allocation as the recording knows it: the block's bytes, those asked for, and its stack."""

    bytes: int
    requested: int
    stream: int
    site: Site


def read_number(item: dict[str, Any], key: str, limit: int = _LARGEST) -> int:
    """A whole number that arrays can hold."""
    value = item[key]
    if type(value) is not int or not 0 <= value < limit:
        raise ValueError(f"{key} is {value!r:.40}")
    return value


def read_bytes(item: dict[str, Any], key: str = "size") -> int:
    """A size on a GPU, so that millions of them still add up to a number that arrays can hold."""
    return read_number(item, key, _LARGEST_SIZE)


class Reader:
    """One device's events and final segments, on their way to a Trace."""

    def __init__(self, events: list[dict[str, Any]], segments: list[dict[str, Any]]) -> None:
        self.events = events
        self.stacks = Stacks()
        # number of an alloc -> its event, once made, and what its block has beyond the request
        self.rests: dict[int, tuple[Alloc | None, int]] = {}
        self.live: dict[int, Held] = {}  # address -> allocation; at the end, then walked back to the start
        self.ranges: SegmentRanges = {}  # the same for memory from the driver
        self.rests_bytes = 0  # those of them that count from the start
        self.odd = 0  # events that contradict the others
        self._read_end(segments)
        self._walk_back()

    def _read_end(self, segments: list[dict[str, Any]]) -> None:
        """The blocks and segments that the snapshot found."""
        budget = 100_000 + 100 * len(self.events)
        for segment in segments:
            address, stream = read_number(segment, "address"), read_number(segment, "stream")
            small = segment.get("segment_type") == "small"
            size = read_bytes(segment, "total_size")
            self.ranges[address] = SegmentAlloc(address, size, stream, small)
            blocks = segment["blocks"]
            budget -= len(blocks)
            if budget < 0:
                raise ValueError("it repeats its blocks without end")
            for block in blocks:
                size = read_bytes(block)
                if block["state"] == "active_allocated":
                    place = read_number(block, "address") if "address" in block else address
                    requested = read_bytes(block, "requested_size") if "requested_size" in block else size
                    site = self.stacks.site(block.get("frames"))
                    self.live[place] = Held(size, min(requested, size), stream, site)
                address += size

    def _walk_back(self) -> None:
        """Undo the events, last first: `live` and `ranges` become what was there before them."""
        for number in range(len(self.events) - 1, -1, -1):
            event = self.events[number]
            action = event["action"]
            if action == "alloc":
                held = self.live.pop(read_number(event, "addr"), None)
                size = _block_bytes(event)
                if held is not None and held.bytes > size:
                    self.rests[number] = (None, held.bytes - size)
            elif action == "free_requested":
                size, stream = read_bytes(event), read_number(event, "stream")
                held = Held(_block_bytes(event), size, stream, Site())
                self.odd += self.live.setdefault(read_number(event, "addr"), held) is not held
            elif action in _TAKES:
                cut(self.ranges, read_number(event, "addr"), read_bytes(event))
            elif action in _GIVES:
                address, size = read_number(event, "addr"), read_bytes(event)
                self.ranges[address] = SegmentAlloc(
                    address, size, read_number(event, "stream"), _is_small(action, size)
                )

    def trace(self, metadata: Provenance) -> Trace:
        """The start as events of its own, then the recorded ones."""
        began = min((read_number(event, "time_us") for event in self.events if "time_us" in event), default=0)
        events: list[Event] = list(self.ranges.values())
        addresses: dict[int, int] = {}  # of living allocations -> their id
        for address, held in self.live.items():
            addresses[address] = len(events)
            events.append(
                Alloc(
                    len(events), held.bytes, site=held.site, stream=held.stream,
                    requested=held.requested, address=address,
                )
            )  # fmt: skip
        baseline = len(events)
        for number, event in enumerate(self.events):
            made = self._event(number, event, began, addresses, len(events))
            if made is not None:
                events.append(made)
        self._count_rests(events, baseline)
        infer_categories(events[baseline:])
        metadata |= {"complete": not baseline, "baseline_events": baseline, "started_us": began}
        marks = [Mark(BEFORE, 0), Mark(RECORDED, baseline)] if baseline else []
        device = Device(f"cuda:{metadata['device']}")
        return Trace(
            "imported", events, device, marks, metadata, self._assumptions(),
            baseline_allocated_bytes=self.rests_bytes,
        )  # fmt: skip

    def _event(
        self, number: int, event: dict[str, Any], began: int, addresses: dict[int, int], next_id: int
    ) -> Event | None:
        action = event["action"]
        time = max(event.get("time_us", began) - began, 0)
        if action == "alloc":
            address, size = read_number(event, "addr"), read_bytes(event)
            addresses[address] = next_id
            site, category = self.stacks.site(event.get("frames")), Category.UNKNOWN
            if event.get("user_metadata"):
                category, site = read_note(str(event["user_metadata"]), site)
            made = Alloc(
                next_id,
                _block_bytes(event),
                category,
                site,
                read_number(event, "stream"),
                size,
                address,
                time,
            )
            if number in self.rests:
                self.rests[number] = (made, self.rests[number][1])
            return made
        if action == "free_requested":
            freed = addresses.pop(read_number(event, "addr"), None)
            return None if freed is None else Free(freed, time)
        if action in _TAKES:
            size = read_bytes(event)
            return SegmentAlloc(
                read_number(event, "addr"), size, read_number(event, "stream"), _is_small(action, size), time
            )
        if action in _GIVES:
            return SegmentFree(read_number(event, "addr"), read_bytes(event), time)
        if action == "oom":
            left = read_number(event, "device_free" if "device_free" in event else "addr")
            return OutOfMemory(read_number(event, "size"), left, self.stacks.site(event.get("frames")), time)
        return None  # free_completed, snapshot, user_defined, ...: nothing changes hands

    def _count_rests(self, events: list[Event], baseline: int) -> None:
        """Count what the blocks alive at the end have beyond their requests.

        A recording from the middle of a run does not say which rests the blocks before them had. With those
        of the end counted from its start the end is what it says, and the peak is nearest to it. Where that
        is more than was reserved, and in recordings from the first allocation on, each counts with its own
        block.
        """
        rests = sum(rest for _, rest in self.rests.values())
        if baseline and rests <= _least_unused_bytes(events, baseline):
            self.rests_bytes += rests
            return
        for alloc, rest in self.rests.values():
            if alloc is not None:
                alloc.bytes += rest

    def _assumptions(self) -> list[Assumption]:
        if not self.odd:
            return []
        return [
            Assumption(
                f"{self.odd} events free what is free already and were left out",
                "the recording contradicts itself, as it does when CUDA graphs restore their pools",
            )
        ]


def _block_bytes(event: dict[str, Any]) -> int:
    """What the block has at least; `block_size` is a key of our own writer."""
    return read_bytes(event, "block_size") if "block_size" in event else _rounded_bytes(read_bytes(event))


def _rounded_bytes(size: int) -> int:
    return max(-(-size // _MIN_BLOCK_BYTES) * _MIN_BLOCK_BYTES, _MIN_BLOCK_BYTES)


def _is_small(action: str, size: int) -> bool:
    """Whether memory belongs to the small pool: segments of 2 MiB, pages that make no large segment."""
    if action in ("segment_map", "segment_unmap"):
        return size % _LARGE_SEGMENT_BYTES != 0
    return size == _SMALL_SEGMENT_BYTES


def _least_unused_bytes(events: list[Event], baseline: int) -> int:
    """The least that was reserved and not allocated, over the recorded events."""
    timeline = Trace("imported", events).timeline()
    if not timeline.reserved:
        return _LARGEST_SIZE
    pairs = zip(timeline.allocated[baseline - 1 :], timeline.reserved[baseline - 1 :], strict=True)
    return min(held - used for used, held in pairs)
