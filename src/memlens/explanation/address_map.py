"""Where everything lay at one moment, as the trace's own addresses say: no replay, no rules."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

from memlens.allocator.blocks import BlockView, SegmentView
from memlens.model import Alloc, Free, SegmentAlloc, SegmentFree, Trace
from memlens.model.address_ranges import SegmentRanges, cut

__all__ = ["SegmentView", "layout"]


def layout(trace: Trace, index: int) -> list[SegmentView]:
    """The segments after event number `index` with the blocks in them, by address; none without addresses.

    Pages of an expandable segment that are next to each other are one segment here.

    >>> from memlens.allocator import replay
    >>> placed = replay(Trace("predicted", [Alloc(1, 4 << 20), Alloc(2, 1 << 10)]))
    >>> [(view.bytes >> 20, [block.state for block in view.blocks]) for view in layout(placed, 3)]
    [(20, ['used', 'free']), (2, ['used', 'free'])]
    """
    live: dict[int, Alloc] = {}
    ranges: SegmentRanges = {}
    for event in trace.events[: index + 1]:
        match event:
            case Alloc():
                live[event.id] = event
            case Free():
                live.pop(event.id, None)
            case SegmentAlloc():
                ranges[event.address] = event
            case SegmentFree():
                cut(ranges, event.address, event.bytes)
    segments = _join_ranges(ranges, bool(_settings(trace).get("expandable_segments")))
    starts = [segment.address for segment in segments]
    inside: list[list[Alloc]] = [[] for _ in segments]
    for alloc in live.values():
        place = bisect_right(starts, alloc.address) - 1 if alloc.address is not None else -1
        if place >= 0:
            inside[place].append(alloc)
    return [
        SegmentView(held.address, held.bytes, held.stream, held.small, False, tuple(_tiles(held, allocs)))
        for held, allocs in zip(segments, inside, strict=True)
    ]


def _settings(trace: Trace) -> dict[str, object]:
    settings: dict[str, object] = trace.metadata.get("allocator_settings") or {}
    return settings


def _join_ranges(ranges: SegmentRanges, expandable: bool) -> list[SegmentAlloc]:
    """Ranges by address; those of one expandable segment joined."""
    joined: list[SegmentAlloc] = []
    for held in sorted(ranges.values(), key=lambda held: held.address):
        last = joined[-1] if joined else None
        if (
            expandable
            and last is not None
            and last.address + last.bytes == held.address
            and (last.stream, last.small) == (held.stream, held.small)
        ):
            joined[-1] = SegmentAlloc(last.address, last.bytes + held.bytes, last.stream, last.small)
        else:
            joined.append(held)
    return joined


def _tiles(held: SegmentAlloc, allocs: Iterable[Alloc]) -> Iterable[BlockView]:
    """The blocks of a segment and the free pieces between them, from its start to its end."""
    place, end = held.address, held.address + held.bytes
    for alloc in sorted(allocs, key=lambda alloc: alloc.address or 0):
        start = alloc.address or 0
        if start < place or start + alloc.bytes > end:
            continue  # the recording contradicts itself
        if start > place:
            yield BlockView(place, start - place, 0, "free")
        yield BlockView(start, alloc.bytes, alloc.requested or alloc.bytes, "used")
        place = start + alloc.bytes
    if place < end:
        yield BlockView(place, end - place, 0, "free")
