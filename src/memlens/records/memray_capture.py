"""memray's capture file into a Trace: every allocation with its stack, native code's included.

Up to `MOST_EVENTS` allocations are taken one by one, in order. Of a longer run only what was held at the peak
is, which is what its owners are read from; the trace says so in its assumptions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from memlens.errors import MissingExtra, RecordError
from memlens.model import Alloc, Assumption, Event, Frame, Free, Process, Sample, Site, Trace
from memlens.records.stacks import site_of

MAGIC = b"memray"
LZ4 = bytes.fromhex("04224d18")  # the magic of an LZ4 frame, little-endian
MOST_EVENTS = 300_000  # about 2 s and 150 MB to convert here (2 cores, Python 3.11)
_FREES = ("FREE", "MUNMAP", "PYMALLOC_FREE")
_OURS = ("entry.py", "bootstrap.py", "spans.py")  # what `memlens run` puts below the program's own frames


def sniff(head: bytes) -> bool:
    """Whether a file that begins with these bytes is a memray capture; memray may have compressed it."""
    return head.startswith(MAGIC) or (head.startswith(LZ4) and MAGIC in head[:64])


def load(path: str | Path) -> Trace:
    """Read a capture. Raises RecordError for a broken one, MissingExtra without memray."""
    try:
        import memray
    except ImportError:
        raise MissingExtra("memray", "exact", "a capture of every allocation") from None
    try:
        reader = memray.FileReader(path)
        try:
            return _convert(memray, reader)
        finally:
            reader.close()
    except (OSError, RuntimeError, ValueError) as error:
        raise RecordError(f"memray cannot read {path}: {error}") from error


def _convert(memray: Any, reader: Any) -> Trace:
    about = reader.metadata
    trace = Trace(
        "imported",
        metadata={
            "format": "memray",
            "command": about.command_line,
            "allocations": about.total_allocations,
            "peak_allocated_bytes": about.peak_memory,
        },
        processes=[Process(about.pid, about.command_line, None, _microseconds(about.start_time))],
    )
    sites = Sites()
    if about.total_allocations <= MOST_EVENTS:
        frees = {getattr(memray.AllocatorType, name).value for name in _FREES}
        mapped = memray.AllocatorType.MMAP.value
        trace.events += _one_by_one(reader.get_allocation_records(), frees, mapped, sites)
    else:
        trace.events += _at_the_peak(reader, sites)
        trace.assumptions.append(
            Assumption(
                "only what was held at the peak is in this trace",
                f"the run made {about.total_allocations:,} allocations, more than {MOST_EVENTS:,}",
            )
        )
    trace.events += [
        Sample(snapshot.time * 1000, about.pid, snapshot.rss) for snapshot in reader.get_memory_snapshots()
    ]
    return trace


def _microseconds(moment: datetime | None) -> int:
    return round(moment.timestamp() * 1e6) if moment is not None else 0


class Sites:
    """Sites by memray's number of a stack: each stack is read once."""

    def __init__(self) -> None:
        self._known: dict[int, Site] = {}

    def of(self, record: Any) -> Site:
        site = self._known.get(record.stack_id)
        if site is None:
            stack = [Frame(file, line, function) for function, file, line in record.stack_trace()]
            while stack and stack[-1].file.endswith(_OURS):
                stack.pop()
            site = self._known[record.stack_id] = site_of(tuple(stack))
        return site


def _one_by_one(records: Iterator[Any], frees: set[int], mapped: int, sites: Sites) -> Iterator[Event]:
    """Every record as an event. Frees of what was allocated before the recording began are left out."""
    live: dict[int, Alloc] = {}
    maps: dict[int, Alloc] = {}
    number = 0

    def allocate(size: int, site: Site, address: int, table: dict[int, Alloc]) -> Alloc:
        nonlocal number
        number += 1
        table[address] = Alloc(number, size, site=site, address=address)
        return table[address]

    for record in records:
        if record.allocator not in frees:
            table = maps if record.allocator == mapped else live
            if record.address in table:  # its free was not seen: the address would not be given twice
                yield Free(table.pop(record.address).id)
            yield allocate(record.size, sites.of(record), record.address, table)
        elif record.size == 0 or record.address in live:
            if (freed := live.pop(record.address, None)) is not None:
                yield Free(freed.id)
        else:
            yield from _unmap(record.address, record.address + record.size, maps, allocate)


def _unmap(
    start: int,
    end: int,
    maps: dict[int, Alloc],
    allocate: Callable[[int, Site, int, dict[int, Alloc]], Alloc],
) -> Iterator[Event]:
    """munmap takes any range: what it leaves of a mapping goes on as smaller ones."""
    for address, block in [
        item for item in maps.items() if item[0] < end and start < item[0] + item[1].bytes
    ]:
        del maps[address]
        yield Free(block.id)
        if address < start:
            yield allocate(start - address, block.site, address, maps)
        if end < address + block.bytes:
            yield allocate(address + block.bytes - end, block.site, end, maps)


def _at_the_peak(reader: Any, sites: Sites) -> Iterator[Event]:
    """One allocation for each stack that held memory at the peak."""
    for number, record in enumerate(reader.get_high_watermark_allocation_records(merge_threads=True), 1):
        yield Alloc(number, record.size, site=sites.of(record))
