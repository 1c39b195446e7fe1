"""Any placed Trace as a torch memory snapshot, for the viewers that people know.

`python -m torch.cuda._memory_viz trace_plot FILE -o page.html` and pytorch.org/memory_viz read it. What a
snapshot has no place for (category, module) goes into each event's `user_metadata`, which the viewer shows
and `memlens` reads back.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any

from memlens.errors import UsageError
from memlens.model import (
    NOWHERE,
    Alloc,
    Category,
    Event,
    Free,
    OutOfMemory,
    SegmentAlloc,
    SegmentFree,
    Site,
    Trace,
)
from memlens.model.address_ranges import SegmentRanges, cut
from memlens.records.stacks import site_of

NOTE = "memlens "  # how a user_metadata of ours begins


def dumps(trace: Trace) -> bytes:
    """`snapshot_dict` as `torch.cuda.memory._dump_snapshot` would write it."""
    return pickle.dumps(snapshot_dict(trace), protocol=4)


def snapshot_dict(trace: Trace) -> dict[str, Any]:
    """The dict that `torch.cuda.memory._snapshot()` returns, with the trace as device 0.

    Raises UsageError for a trace that no allocator has placed: `memlens.allocator.replay` does.
    """
    if any(isinstance(event, Alloc) and event.address is None for event in trace.events):
        raise UsageError(
            "a snapshot needs the address of every allocation",
            hint="place the trace first: memlens.allocator.replay(trace)",
        )
    began = trace.metadata.get("started_us", 0)
    baseline = trace.metadata.get("baseline_events", 0)
    stacks = _Stacks()
    settings = trace.metadata.get("allocator_settings", {})
    written = _Events(stacks, began, bool(settings.get("expandable_segments")))
    for event in trace.events[:baseline]:
        written.keep(event)
    events = [item for event in trace.events[baseline:] for item in written.write(event)]
    return {
        "segments": written.segments(),
        "device_traces": [events],
        "rests_bytes": trace.baseline_allocated_bytes,
        "allocator_settings": settings,
        "external_annotations": [
            {"stage": "START", "name": mark.name, "device": 0, "time_us": began + mark.time_us}
            | {"index": mark.index, "step": mark.step}
            for mark in trace.marks
            if mark.index > baseline or not baseline
        ],
    }


class _Stacks:
    """Recorded lists of frames and notes, one for each site object: thousands of events share one."""

    def __init__(self) -> None:
        self._lists: dict[int, list[dict[str, Any]]] = {}
        self._notes: dict[tuple[int, Category], str] = {}

    def note(self, alloc: Alloc) -> str:
        key = id(alloc.site), alloc.category
        text = self._notes.get(key)
        if text is None:
            text = self._notes[key] = note(alloc.category, alloc.site)
        return text

    def frames(self, site: Site) -> list[dict[str, Any]]:
        frames = self._lists.get(id(site))
        if frames is None:
            stack: Sequence[tuple[str, int, str]] = site.frames
            if not stack and site.file:
                stack = [(site.file, site.line, site.function)]
            frames = self._lists[id(site)] = [
                {"name": name, "filename": file, "line": line} for file, line, name in stack
            ]
        return frames


class _Events:
    """Writes one event after the other, keeping what is alive."""

    def __init__(self, stacks: _Stacks, began: int, expandable: bool) -> None:
        self.stacks = stacks
        self.expandable = expandable
        self.began = began
        self.live: dict[int, Alloc] = {}
        self.ranges: SegmentRanges = {}

    def keep(self, event: Event) -> None:
        match event:
            case Alloc():
                self.live[event.id] = event
            case Free():
                self.live.pop(event.id, None)
            case SegmentAlloc():
                self.ranges[event.address] = event

    def write(self, event: Event) -> Iterator[dict[str, Any]]:
        freed = self.live.get(event.id) if isinstance(event, Free) else None
        self.keep(event)
        time = self.began + event.time_us
        match event:
            case Alloc():
                yield (
                    self._item(
                        "alloc", event.address or 0, event.requested or event.bytes, event.stream, time
                    )
                    | {
                        "user_metadata": self.stacks.note(event),
                        "frames": self.stacks.frames(event.site),
                    }
                    | _size_note(event)
                )
            case Free() if freed is not None:
                for action in ("free_requested", "free_completed"):
                    size = freed.requested or freed.bytes
                    item = self._item(action, freed.address or 0, size, freed.stream, time)
                    yield item | _size_note(freed)
            case SegmentAlloc():
                action = "segment_map" if self.expandable else "segment_alloc"
                yield self._item(action, event.address, event.bytes, event.stream, time)
            case SegmentFree():
                action = "segment_unmap" if self.expandable else "segment_free"
                held = cut(self.ranges, event.address, event.bytes)
                yield self._item(action, event.address, event.bytes, held.stream if held else 0, time)
            case OutOfMemory():
                yield self._item("oom", 0, event.bytes, 0, time) | {
                    "device_free": event.free_bytes,
                    "frames": self.stacks.frames(event.site),
                }

    @staticmethod
    def _item(action: str, address: int, size: int, stream: int, time: int) -> dict[str, Any]:
        return {
            "action": action, "addr": address, "size": size, "stream": stream, "time_us": time,
            "frames": [],
        }  # fmt: skip

    def segments(self) -> list[dict[str, Any]]:
        """The state after the last event: every segment with the blocks that tile it."""
        allocs = sorted(self.live.values(), key=lambda alloc: alloc.address or 0)
        states, first = [], 0
        for segment in sorted(self.ranges.values(), key=lambda held: held.address):
            end, inside = segment.address + segment.bytes, []
            while first < len(allocs) and (allocs[first].address or 0) < end:
                inside.append(allocs[first])
                first += 1
            used = sum(alloc.bytes for alloc in inside)
            states.append(
                {
                    "device": 0, "address": segment.address, "total_size": segment.bytes,
                    "allocated_size": used, "active_size": used,
                    "requested_size": sum(alloc.requested or alloc.bytes for alloc in inside),
                    "stream": segment.stream, "segment_type": "small" if segment.small else "large",
                    "segment_pool_id": (0, 0), "is_expandable": self.expandable, "frames": [],
                    "blocks": list(self._blocks(segment, inside)),
                }
            )  # fmt: skip
        return states

    def _blocks(self, segment: SegmentAlloc, inside: list[Alloc]) -> Iterator[dict[str, Any]]:
        place = segment.address
        for alloc in inside:
            start = alloc.address or 0
            if start > place:
                yield _block(place, start - place, 0, "inactive", [])
            frames = self.stacks.frames(alloc.site)
            yield _block(start, alloc.bytes, alloc.requested or alloc.bytes, "active_allocated", frames)
            place = start + alloc.bytes
        if place < segment.address + segment.bytes:
            yield _block(place, segment.address + segment.bytes - place, 0, "inactive", [])


def _block(
    address: int, size: int, requested: int, state: str, frames: list[dict[str, Any]]
) -> dict[str, Any]:
    return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": frames}


def _size_note(alloc: Alloc) -> dict[str, int]:
    """The block's size where the viewer, which rounds the request up to 512, would not find it."""
    requested = alloc.requested or alloc.bytes
    return {} if alloc.bytes == -(-requested // 512) * 512 else {"block_size": alloc.bytes}


def note(category: Category, site: Site) -> str:
    """What a snapshot has no field for, as text: `memlens category=activations module=layers.3`."""
    derived = site_of(site.frames)
    known = {
        "category": "" if category is Category.UNKNOWN else category.value,
        "module": site.module,
        "type": site.module_type,
        "operator": site.operator if site.operator != derived.operator else "",
        "backward": "1" if site.backward and not derived.backward else "",
    }
    words = " ".join(
        f"{key}={value}" for key, value in known.items() if value or (key == "module" and value == "")
    )
    return NOTE + words if words else ""


def read_note(text: str, site: Site) -> tuple[Category, Site]:
    """The category and the fuller site of a `note`; UNKNOWN and the site itself for any other text."""
    if not text.startswith(NOTE):
        return Category.UNKNOWN, site
    words = dict(word.split("=", 1) for word in text.removeprefix(NOTE).split(" ") if "=" in word)
    category = next((c for c in Category if c.value == words.get("category")), Category.UNKNOWN)
    fuller = Site(
        site.file, site.line, site.function, words.get("module", site.module),
        words.get("type", site.module_type), words.get("operator", site.operator),
        "backward" in words or site.backward, site.frames,
    )  # fmt: skip
    return category, NOWHERE if fuller == NOWHERE else fuller
