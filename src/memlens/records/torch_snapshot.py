"""PyTorch's own recordings: what `torch.cuda.memory._dump_snapshot` writes.

The file holds the events since the recording began and the allocator's segments at its end. Walking the
events backwards from that end gives what was there at the start, so that sums close; those blocks and
segments are the first events of the Trace, under a mark of their own.

An event tells what was asked for, only the end tells what the blocks are: up to 1 MiB more, where a rest
was not worth splitting. `memlens.allocator.verify` finds the true size of every block by replaying.
"""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path
from typing import Any, NamedTuple

from memlens.errors import RecordError, UsageError
from memlens.model import (
    Alloc,
    Assumption,
    Category,
    Device,
    Event,
    Free,
    Mark,
    OutOfMemory,
    SegmentAlloc,
    SegmentFree,
    Site,
    Trace,
)
from memlens.records import plain_pickle
from memlens.records.inference import infer_categories
from memlens.records.snapshot_writer import read_note
from memlens.records.stacks import Stacks

BEFORE, RECORDED = "before the recording", "recording"  # the two marks of a recording from mid-process
_MIN_BLOCK_BYTES = 512  # kMinBlockSize in c10/core/AllocatorConfig.h: what a request is rounded up to
_SMALL_SEGMENT_BYTES = 2 << 20  # kSmallBuffer there
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


def sniff(head: bytes) -> bool:
    """A pickle of protocol 2 or later. What it holds is seen when it is loaded."""
    return len(head) > 1 and head[0] == 0x80 and 2 <= head[1] <= 5


def load(path: Path) -> Trace:
    return load_snapshot(path)


def load_snapshot(path: str | Path, device: int | None = None) -> Trace:
    """The Trace of one device in a snapshot: `device`, or the first that has events.

    `metadata` holds `devices` (all that have events), `device`, `complete` (recorded from the first
    allocation on), `baseline_events` (how many of the first events stand for what was there before),
    `allocator_settings` and `started_us`. Times count from the first event.

    Raises RecordError for a file that is truncated, foreign or hostile; UsageError for a device without
    events.
    """
    path = Path(path)
    data = plain_pickle.read(path)
    try:
        return trace_of(data, device, source=str(path))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise RecordError(
            f"{path} is no torch memory snapshot ({type(error).__name__}: {error})",
            hint="write one with torch.cuda.memory._dump_snapshot(path)",
        ) from None


def trace_of(data: dict[str, Any], device: int | None = None, *, source: str = "") -> Trace:
    """The Trace of the snapshot dict that `torch.cuda.memory._snapshot()` returns."""
    traces = data["device_traces"]
    recorded = [number for number, events in enumerate(traces) if events]
    holding = sorted({_number(segment, "device") for segment in data["segments"]})
    devices = recorded or holding
    if device is None:
        device = devices[0] if devices else 0
    elif device not in devices:
        raise UsageError(
            f"the snapshot has no events of device {device}",
            hint=f"it has those of {', '.join(map(str, devices)) or 'none'}",
        )
    events = traces[device] if device < len(traces) else []
    if len({id(event) for event in events}) < len(events):
        raise ValueError("it repeats its events")
    segments = [segment for segment in data["segments"] if segment["device"] == device]
    reader = _Reader(events, segments)
    reader.rests_bytes += _size(data, "rests_bytes") if "rests_bytes" in data else 0
    trace = reader.trace(
        {
            "format": "torch CUDA memory snapshot",
            "source": source,
            "device": device,
            "devices": devices,
            "allocator_settings": dict(data.get("allocator_settings") or {}),
        }
    )
    trace.marks += _annotations(data.get("external_annotations") or [], trace)
    return trace


def _annotations(items: list[dict[str, Any]], trace: Trace) -> list[Mark]:
    """The beginnings of what the profiler named (`Optimizer.step#AdamW.step`), counted by name.

    PyTorch gives them a time; `memlens`, whose predictions have none, the number of the event as well.
    """
    began, start = trace.metadata["started_us"], trace.metadata["baseline_events"]
    times = [event.time_us for event in trace.events[start:]]
    marks: list[Mark] = []
    counts: dict[str, int] = {}
    for item in items:
        if (
            item["stage"] != "START"
            or item.get("device", trace.metadata["device"]) != trace.metadata["device"]
        ):
            continue
        name, time = str(item["name"]), max(_number(item, "time_us") - began, 0)
        if "index" in item:
            marks.append(
                Mark(name, min(_number(item, "index"), len(trace.events)), _number(item, "step"), time)
            )
        else:
            counts[name] = counts.get(name, 0) + 1
            marks.append(Mark(name, start + bisect_left(times, time), counts[name], time))
    return sorted(marks, key=lambda mark: mark.index)


def _number(item: dict[str, Any], key: str, limit: int = _LARGEST) -> int:
    """A whole number that arrays can hold."""
    value = item[key]
    if type(value) is not int or not 0 <= value < limit:
        raise ValueError(f"{key} is {value!r:.40}")
    return value


def _size(item: dict[str, Any], key: str = "size") -> int:
    """A size on a GPU, so that millions of them still add up to a number that arrays can hold."""
    return _number(item, key, _LARGEST_SIZE)


class _Reader:
    """One device's events and final segments, on their way to a Trace."""

    def __init__(self, events: list[dict[str, Any]], segments: list[dict[str, Any]]) -> None:
        self.events = events
        self.stacks = Stacks()
        self.sizes: dict[int, int] = {}  # event number of an alloc -> its block's bytes
        self.stated: dict[int, int] = {}  # the same where the file says so, which only ours do
        self.live: dict[int, Held] = {}  # address -> allocation; at the end, then walked back to the start
        self.ranges: dict[int, SegmentAlloc] = {}  # the same for memory from the driver
        self.rests_bytes = 0  # what blocks of recorded events, alive at the end, have beyond their requests
        self.odd = 0  # events that contradict the others
        self._read_end(segments)
        self._walk_back()

    def _read_end(self, segments: list[dict[str, Any]]) -> None:
        """The blocks and segments that the snapshot found."""
        budget = 100_000 + 100 * len(self.events)
        for segment in segments:
            address, stream = _number(segment, "address"), _number(segment, "stream")
            small = segment.get("segment_type") == "small"
            size = _size(segment, "total_size")
            self.ranges[address] = SegmentAlloc(address, size, stream, small)
            blocks = segment["blocks"]
            budget -= len(blocks)
            if budget < 0:
                raise ValueError("it repeats its blocks without end")
            for block in blocks:
                size = _size(block)
                if block["state"] == "active_allocated":
                    place = _number(block, "address") if "address" in block else address
                    requested = _size(block, "requested_size") if "requested_size" in block else size
                    site = self.stacks.site(block.get("frames"))
                    self.live[place] = Held(size, min(requested, size), stream, site)
                address += size

    def _walk_back(self) -> None:
        """Undo the events, last first: `live` and `ranges` become what was there before them."""
        for number in range(len(self.events) - 1, -1, -1):
            event = self.events[number]
            action = event["action"]
            if action == "alloc":
                held = self.live.pop(_number(event, "addr"), None)
                size = _block_size(event)
                self.sizes[number] = max(size, held.bytes) if held else size
                self.rests_bytes += self.sizes[number] - size
                if "block_size" in event:
                    self.stated[number] = size
            elif action == "free_requested":
                size, stream = _size(event), _number(event, "stream")
                held = Held(_block_size(event), size, stream, Site())
                self.odd += self.live.setdefault(_number(event, "addr"), held) is not held
            elif action in _TAKES:
                self._forget_range(_number(event, "addr"), _size(event))
            elif action in _GIVES:
                address, size = _number(event, "addr"), _size(event)
                self.ranges[address] = SegmentAlloc(address, size, _number(event, "stream"), _is_small(size))

    def _forget_range(self, address: int, size: int) -> None:
        """Cut address..address+size out of the ranges: a whole segment, or pages of an expandable one."""
        whole = self.ranges.get(address)
        if whole is not None and whole.bytes == size:
            del self.ranges[address]
            return
        for start, held in list(self.ranges.items()):
            end = start + held.bytes
            if start < address + size and address < end:
                del self.ranges[start]
                for low, high in ((start, min(address, end)), (max(address + size, start), end)):
                    if low < high:
                        self.ranges[low] = SegmentAlloc(low, high - low, held.stream, held.small)

    def trace(self, metadata: dict[str, Any]) -> Trace:
        """The start as events of its own, then the recorded ones."""
        began = min((_number(event, "time_us") for event in self.events if "time_us" in event), default=0)
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
        if baseline:
            # Which rests the blocks before them had is not known. With those of the end counted from the
            # start, and not again as they come, the end is what the recording says.
            self.sizes = self.stated
        else:
            self.rests_bytes = 0
        for number, event in enumerate(self.events):
            made = self._event(number, event, began, addresses, len(events))
            if made is not None:
                events.append(made)
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
            address, size = _number(event, "addr"), _size(event)
            addresses[address] = next_id
            site, category = self.stacks.site(event.get("frames")), Category.UNKNOWN
            if event.get("user_metadata"):
                category, site = read_note(str(event["user_metadata"]), site)
            block = self.sizes.get(number) or _rounded(size)
            stream = _number(event, "stream")
            return Alloc(next_id, block, category, site, stream, size, address, time)
        if action == "free_requested":
            freed = addresses.pop(_number(event, "addr"), None)
            return None if freed is None else Free(freed, time)
        if action in _TAKES:
            size = _size(event)
            return SegmentAlloc(_number(event, "addr"), size, _number(event, "stream"), _is_small(size), time)
        if action in _GIVES:
            return SegmentFree(_number(event, "addr"), _size(event), time)
        if action == "oom":
            left = _number(event, "device_free" if "device_free" in event else "addr")
            return OutOfMemory(_number(event, "size"), left, self.stacks.site(event.get("frames")), time)
        return None  # free_completed, snapshot, user_defined, ...: nothing changes hands

    def _assumptions(self) -> list[Assumption]:
        if not self.odd:
            return []
        return [
            Assumption(
                f"{self.odd} events free what is free already and were left out",
                "the recording contradicts itself, as it does when CUDA graphs restore their pools",
            )
        ]


def _block_size(event: dict[str, Any]) -> int:
    """What the block has at least; `block_size` is a key of our own writer."""
    return _size(event, "block_size") if "block_size" in event else _rounded(_size(event))


def _rounded(size: int) -> int:
    return max(-(-size // _MIN_BLOCK_BYTES) * _MIN_BLOCK_BYTES, _MIN_BLOCK_BYTES)


def _is_small(size: int) -> bool:
    """Segments of the small pool are 2 MiB; large ones of that size do not exist."""
    return size == _SMALL_SEGMENT_BYTES
