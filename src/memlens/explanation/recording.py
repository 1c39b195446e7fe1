"""What a recording shows, as one document: peak, holders, pools, failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from memlens.allocator.replay import Verification
from memlens.explanation.fragmentation import PoolUse
from memlens.explanation.growth import growth
from memlens.explanation.oom_cause import Cause
from memlens.model import Breakdown, Trace

HOLDERS = 10


def holders(trace: Trace, held: Breakdown) -> list[dict[str, Any]]:
    """Who holds the memory, by source line: largest first, with the number of allocations."""
    start = trace.metadata.get("baseline_events", 0)
    before = trace.marks[0].name if start else ""
    rows: dict[str, list[int]] = {}
    if held.baseline_bytes:
        rows[before] = [held.baseline_bytes, 0]
    for alloc in held.live:
        where = alloc.site.where or (
            before if alloc.id < start else alloc.site.operator or "no stack recorded"
        )
        row = rows.setdefault(where, [0, 0])
        row[0] += alloc.bytes
        row[1] += 1
    ordered = sorted(rows.items(), key=lambda item: -item[1][0])
    return [{"line": where, "bytes": size, "allocations": count} for where, (size, count) in ordered]


def document(
    trace: Trace,
    held: Breakdown,
    use: Sequence[PoolUse],
    found: Sequence[Cause],
    checked: Verification,
    *,
    modules: Sequence[Mapping[str, Any]] = (),
    replay: bool = False,
    top: int = HOLDERS,
) -> dict[str, Any]:
    """`memlens snapshot --json`, schema memlens.snapshot/1.

    `peak.allocated_bytes` is what the recording says, which knows only what was asked for;
    `peak.block_bytes` counts each block at the size that the replay `checked` found. `modules` are the rows
    of `memlens.explanation.modules`, largest first.
    """
    timeline, start = trace.timeline(), trace.metadata["baseline_events"]
    event = trace.events[held.index] if 0 <= held.index < len(trace.events) else None
    result: dict[str, Any] = {
        "schema": "memlens.snapshot/1",
        "file": trace.metadata["source"],
        "device": trace.metadata["device"],
        "devices": trace.metadata["devices"],
        "complete": trace.metadata["complete"],
        "allocator_settings": trace.metadata["allocator_settings"],
        "events": len(trace.events) - start,
        "start_allocated_bytes": timeline.allocated[start - 1] if start else 0,
        "peak": {
            "allocated_bytes": timeline.peak_allocated_bytes,
            "block_bytes": checked.trace.timeline().peak_allocated_bytes,
            "reserved_bytes": timeline.peak_reserved_bytes,
            "event": timeline.peak_index - start,
        },
        "end_allocated_bytes": timeline.allocated[-1] if timeline.allocated else 0,
        "reserved_bytes": timeline.reserved[-1] if timeline.reserved else 0,
        "at": {
            "event": held.index - start,
            "time_us": event.time_us if event else 0,
            "allocated_bytes": held.allocated_bytes,
            "categories": {category.value: size for category, size in held.by_category().items()},
            "holders": holders(trace, held)[:top],
            "modules": [dict(row) for row in modules[:top]],
        },
        "marks": [
            {
                "name": mark.name,
                "step": mark.step,
                "event": mark.index - start,
                "allocated_bytes": timeline.allocated[mark.index - 1] if mark.index else 0,
            }
            for mark in (trace.marks[2:] if start else trace.marks)  # without those of the start itself
        ],
        "growth": found_growth.to_dict() if (found_growth := growth(trace)) is not None else None,
        "pools": [_pool(pool) for pool in use],
        "out_of_memory": [
            {
                "event": cause.index - start,
                "requested_bytes": cause.event.bytes,
                "free_bytes": cause.event.free_bytes,
                "allocated_bytes": cause.allocated_bytes,
                "reserved_bytes": cause.reserved_bytes,
                "fragmented": cause.fragmented,
                "expandable_segments_fits": cause.expandable_fits,
                "cause": cause.text(),
            }
            for cause in found
        ],
        "assumptions": [{"what": item.what, "why": item.why} for item in trace.assumptions],
    }
    if replay:
        result["replay"] = replay_document(checked)
    return result


def _pool(use: PoolUse) -> dict[str, Any]:
    names = (
        "segments",
        "reserved_bytes",
        "used_bytes",
        "free_bytes",
        "largest_free_bytes",
        "releasable_bytes",
    )
    return {"pool": use.pool, **{name: getattr(use, name) for name in names}}


def replay_document(replayed: Verification) -> dict[str, Any]:
    return {
        "allocations": replayed.allocations,
        "address_mismatches": replayed.address_mismatches,
        "segment_mismatches": replayed.segment_mismatches,
        "recorded_reserved_bytes": replayed.recorded_reserved_bytes,
        "replayed_reserved_bytes": replayed.replayed_reserved_bytes,
        "complete": replayed.complete,
    }
