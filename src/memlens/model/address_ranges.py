"""Memory from the driver, as ranges of addresses that can be given back in part."""

from __future__ import annotations

from memlens.model.events import SegmentAlloc

SegmentRanges = dict[int, SegmentAlloc]  # by address


def cut(ranges: SegmentRanges, address: int, size: int) -> SegmentAlloc | None:
    """Take address..address+size out: a whole segment, or pages of an expandable one; what held it.

    >>> held = {0: SegmentAlloc(0, 60)}
    >>> cut(held, 20, 20)
    SegmentAlloc(address=0, bytes=60, stream=0, small=False, time_us=0)
    >>> sorted((segment.address, segment.bytes) for segment in held.values())
    [(0, 20), (40, 20)]
    """
    whole = ranges.get(address)
    if whole is not None and whole.bytes == size:
        return ranges.pop(address)
    holder = None
    for start, held in list(ranges.items()):
        end = start + held.bytes
        if start < address + size and address < end:
            holder = ranges.pop(start)
            for low, high in ((start, min(address, end)), (max(address + size, start), end)):
                if low < high:
                    ranges[low] = SegmentAlloc(low, high - low, held.stream, held.small)
    return holder
