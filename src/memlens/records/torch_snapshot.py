"""PyTorch's own recordings: what `torch.cuda.memory._dump_snapshot` writes.

The file holds the events since the recording began and the allocator's segments at its end. Walking the
events backwards from that end gives what was there at the start, so that sums close; those blocks and
segments are the first events of the Trace, under a mark of their own.

An event has the size of the request; only the segments at the end have sizes of blocks, which are up to 1 MiB
larger where the remainder was not worth splitting. `memlens.allocator.verify` finds the true size of every
block by replaying.
"""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path
from typing import Any

from memlens.errors import RecordError, UsageError
from memlens.model import Mark, Trace
from memlens.records import plain_pickle
from memlens.records.snapshot_reader import Reader, read_bytes, read_number


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
    holding = sorted({read_number(segment, "device") for segment in data["segments"]})
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
    reader = Reader(events, segments)
    reader.rests_bytes += read_bytes(data, "rests_bytes") if "rests_bytes" in data else 0
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
        name, time = str(item["name"]), max(read_number(item, "time_us") - began, 0)
        if "index" in item:
            marks.append(
                Mark(
                    name, min(read_number(item, "index"), len(trace.events)), read_number(item, "step"), time
                )
            )
        else:
            counts[name] = counts.get(name, 0) + 1
            marks.append(Mark(name, start + bisect_left(times, time), counts[name], time))
    return sorted(marks, key=lambda mark: mark.index)
