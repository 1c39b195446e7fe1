"""What every reader of a record may rely on, checked once where it is read: a file may come from anywhere."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain, pairwise
from typing import Any

import msgspec

from memlens.model import (
    Alloc,
    Free,
    OutOfMemory,
    Provenance,
    Sample,
    SegmentAlloc,
    SegmentFree,
    Trace,
)
from memlens.model.lines import LineTable

LARGEST = 1 << 60  # of a number; four of them still fit in the 64 bits of an array


def check(trace: Trace) -> None:
    """Raises ValueError for a trace that makes no sense.

    >>> from memlens.model import Free, Trace
    >>> check(Trace("measured", [Free(7)]))
    Traceback (most recent call last):
    ValueError: event 0 frees allocation 7, which is not alive
    """
    known = msgspec.convert(trace.metadata, Provenance)
    _check_metadata(known)
    start = known.get("baseline_events", 0)
    if not 0 <= start <= len(trace.events):
        raise ValueError(f"{start} of its {len(trace.events)} events are its start")
    _check_numbers(trace)
    _check_lives(trace)
    indices = [0, *(mark.index for mark in trace.marks), len(trace.events)]
    if any(before > after for before, after in pairwise(indices)):
        raise ValueError(f"its marks are out of order, or beyond its {len(trace.events)} events")


def _check_metadata(known: Provenance) -> None:
    """Tables by line are such tables, and sizes are sizes."""
    tables = [msgspec.convert(table, LineTable) for table in known.get("lines") or ()]
    rows = [row for table in tables for row in table.rows]
    peaks = [*known.get("python_peaks", {}).values(), *(size for _, size in known.get("top_lines", ()))]
    sizes = [known.get("largest_process_bytes") or 0, known.get("peak_allocated_bytes", 0), *peaks]
    for item in (*tables, *rows, *(left for row in rows for left in row.gpu_left)):
        sizes += [value for value in _values(item) if type(value) is int]
    _check_range("a figure of its metadata", sizes)


def _values(item: Any) -> Iterable[Any]:
    return item if isinstance(item, tuple) else (getattr(item, name) for name in item.__slots__)


def _check_range(name: str, numbers: Iterable[int]) -> None:
    for number in numbers:
        if not -LARGEST < number < LARGEST:
            raise ValueError(f"{name} is {number}")


def _check_numbers(trace: Trace) -> None:
    """Every size and every time is one that arrays hold; sizes of processes may fall, none is negative."""
    for item in chain(trace.events, trace.marks, trace.processes, trace.spans):
        for name in item.__slots__:
            value = getattr(item, name)
            if type(value) is int and not -LARGEST < value < LARGEST:
                raise ValueError(f"{name} of {type(item).__name__} is {value}")
    sizes = [trace.baseline_allocated_bytes, trace.baseline_reserved_bytes]
    for event in trace.events:
        match event:
            case Alloc() | SegmentAlloc() | SegmentFree() | OutOfMemory():
                sizes.append(event.bytes)
            case Sample():
                sizes += [size for size in _readings(event) if size is not None]
    if any(size < 0 for size in sizes) or sum(sizes) >= 4 * LARGEST:
        raise ValueError("it has sizes below nothing, or beyond all memory")


def _readings(sample: Sample) -> tuple[int | None, ...]:
    return (
        sample.rss_bytes, sample.pss_bytes, sample.uss_bytes, sample.swap_bytes, sample.gpu_bytes,
        sample.python_bytes,
    )  # fmt: skip


def _check_lives(trace: Trace) -> None:
    """What is freed was allocated, and nothing is allocated twice at a time."""
    live: set[int] = set()
    for number, event in enumerate(trace.events):
        if isinstance(event, Alloc):
            if event.id in live:
                raise ValueError(f"event {number} allocates {event.id}, which is alive")
            live.add(event.id)
        elif isinstance(event, Free):
            if event.id not in live:
                raise ValueError(f"event {number} frees allocation {event.id}, which is not alive")
            live.remove(event.id)
