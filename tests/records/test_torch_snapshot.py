"""PyTorch's snapshots, read and written."""

from __future__ import annotations

import pickle
import random
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memlens.allocator import replay, verify
from memlens.errors import RecordError, UsageError
from memlens.explanation.explain import explain
from memlens.model import (
    Alloc,
    Category,
    Frame,
    Free,
    Mark,
    OutOfMemory,
    SegmentAlloc,
    Site,
    Trace,
)
from memlens.records import load
from memlens.records.snapshot_writer import dumps, snapshot_dict
from memlens.records.torch_snapshot import load_snapshot, trace_of
from memlens.units import KIB, MIB

BASE = 1 << 40
FRAMES = [
    {"name": "at::_ops::mm::call(at::Tensor const&)", "filename": "??", "line": 0},
    {"name": "linear", "filename": "/x/site-packages/torch/nn/functional.py", "line": 12},
    {"name": "forward", "filename": "net.py", "line": 7},
    {"name": "<module>", "filename": "train.py", "line": 3},
]


def event(action: str, address: int, size: int, time: int = 0, **more: Any) -> dict[str, Any]:
    return {
        "action": action,
        "addr": BASE + address,
        "size": size,
        "stream": 0,
        "time_us": 1000 + time,
        **more,
    }


def segment(*blocks: tuple[int, int], size: int = 20 * MIB, address: int = BASE) -> dict[str, Any]:
    """A segment with active blocks at (offset, size), the rest inactive."""
    tiles, place = [], 0
    for offset, length in (*blocks, (size, 0)):
        if offset > place:
            tiles.append({"address": address + place, "size": offset - place, "state": "inactive"})
        if length:
            tiles.append({"address": address + offset, "size": length, "state": "active_allocated"})
        place = offset + length
    return {
        "device": 0,
        "address": address,
        "total_size": size,
        "stream": 0,
        "segment_type": "large",
        "blocks": tiles,
    }


def snapshot(events: list[dict[str, Any]], *segments: dict[str, Any]) -> dict[str, Any]:
    return {"segments": list(segments), "device_traces": [events], "allocator_settings": {}}


def test_a_recording_from_the_start() -> None:
    """Two allocations, one freed: ids, sizes, sites, times and segments as recorded."""
    events = [
        event("segment_alloc", 0, 20 * MIB),
        event("alloc", 0, 4 * MIB, 5, frames=FRAMES),
        event("alloc", 4 * MIB, 1000, 6),
        event("free_requested", 0, 4 * MIB, 7),
        event("free_completed", 0, 4 * MIB, 7),
        event("snapshot", 0, 0, 8),
    ]
    trace = trace_of(snapshot(events, segment((4 * MIB, 1024))))
    trace.check()
    assert trace.metadata["complete"]
    kinds = [type(item) for item in trace.events]
    assert kinds == [SegmentAlloc, Alloc, Alloc, Free]
    first, second = trace.allocations().values()
    assert (first.bytes, first.requested, first.address, first.time_us) == (4 * MIB, 4 * MIB, BASE, 5)
    assert (second.bytes, second.requested) == (1024, 1000)
    assert (first.site.where, first.site.operator, first.site.function) == ("net.py:7", "mm", "forward")
    assert first.site.frames[0] == Frame("??", 0, "at::_ops::mm::call(at::Tensor const&)")
    assert trace.timeline().peak_allocated_bytes == 4 * MIB + 1024


def test_what_was_there_before_is_reconstructed() -> None:
    """A block freed in the recording and one alive at its end were both allocated at its start."""
    events = [
        event("free_requested", 0, 2 * MIB),
        event("alloc", 0, 6 * MIB),
        event("segment_free", 1 << 30, 30 * MIB),
    ]
    trace = trace_of(snapshot(events, segment((0, 6 * MIB), (10 * MIB, 3 * MIB))))
    trace.check()
    assert not trace.metadata["complete"]
    assert [mark.name for mark in trace.marks] == ["before the recording", "recording"]
    start = trace.metadata["baseline_events"]
    timeline = trace.timeline()
    assert timeline.allocated[start - 1] == 5 * MIB
    assert timeline.reserved[start - 1] == 50 * MIB
    assert (timeline.allocated[-1], timeline.reserved[-1]) == (9 * MIB, 20 * MIB)


def test_rests_of_blocks_close_the_sum() -> None:
    """A recorded 4 MiB that turns out a block of 4.5 counts its rest from the start."""
    trace = trace_of(snapshot([event("alloc", 0, 4 * MIB)], segment((0, 4 * MIB + 512 * KIB))))
    assert trace.baseline_allocated_bytes == 512 * KIB
    assert trace.timeline().allocated[-1] == 4 * MIB + 512 * KIB


def test_pages_of_expandable_segments_are_segments_too() -> None:
    """map and unmap change reserved memory; of 60 mapped MiB at the end, 40 were there at the start."""
    events = [event("segment_map", 40 * MIB, 20 * MIB), event("segment_unmap", 100 * MIB, 20 * MIB)]
    trace = trace_of(snapshot(events, segment(size=60 * MIB)))
    assert list(trace.timeline().reserved)[-3:] == [60 * MIB, 80 * MIB, 60 * MIB]


def test_running_out_is_an_event() -> None:
    """An oom event carries what was asked for and what the device had left."""
    failed = event("oom", 0, 50 * MIB, device_free=3 * MIB, frames=FRAMES)
    (found,) = trace_of(snapshot([failed])).events
    assert isinstance(found, OutOfMemory)
    assert (found.bytes, found.free_bytes, found.site.where) == (50 * MIB, 3 * MIB, "net.py:7")


def test_one_device_of_several() -> None:
    """The first device with events is read unless another is named; one without events is an error."""
    data = snapshot([])
    data["device_traces"] = [
        [],
        [event("oom", 0, 512, device_free=0)],
        [event("oom", 0, 1024, device_free=0)],
    ]
    assert trace_of(data).metadata["devices"] == [1, 2]
    assert trace_of(data, 2).events[0].bytes == 1024  # type: ignore[union-attr]
    with pytest.raises(UsageError, match="device 0") as error:
        trace_of(data, 0)
    assert error.value.hint == "it has those of 1, 2"


def test_an_event_that_contradicts_the_others_is_left_out() -> None:
    """A block freed twice is freed once, and the report says so."""
    events = [event("free_requested", 0, 512), event("free_requested", 0, 512)]
    trace = trace_of(snapshot(events))
    trace.check()
    assert trace.assumptions[0].what.startswith("1 events free")


@pytest.mark.parametrize(
    "data",
    [
        [],
        None,
        7,
        {},
        {"segments": []},
        {"segments": [], "device_traces": 3},
        {"segments": [7], "device_traces": [[]]},
        {"segments": [], "device_traces": [[{"action": "alloc"}]]},
        {"segments": [], "device_traces": [[event("alloc", 0, 1 << 70)]]},
        {"segments": [], "device_traces": [[event("alloc", 0, -512)]]},
        {"segments": [], "device_traces": [[event("alloc", 0, 2.5)]]},  # type: ignore[arg-type]
        {"segments": [], "device_traces": [[event("alloc", 0, 512, frames=[1])]]},
        {"segments": [], "device_traces": [[event("alloc", 0, 512, frames=[{"name": 1}])]]},
        {"segments": [segment()] * 1000 + [segment((0, 512))] * 200_000, "device_traces": [[]]},
    ],
    ids=range(14),
)
def test_foreign_data_is_one_clear_error(tmp_path: Path, data: Any) -> None:
    """A pickle of something else, or of wrong types, is no snapshot, and the path is named."""
    path = tmp_path / "foreign.pickle"
    path.write_bytes(pickle.dumps(data))
    with pytest.raises(RecordError, match=r"foreign\.pickle"):
        load(path)


def program() -> Trace:
    """A predicted trace with everything that a snapshot can carry."""
    site = Site(
        "net.py", 7, "forward", module="layers.0", module_type="Linear", operator="aten.mm", backward=True
    )
    events = [
        Alloc(1, 19 * MIB, Category.PARAMETER, Site("net.py", 3, "__init__", module="")),
        Alloc(3, 3000, Category.ACTIVATION, site, stream=7),
        Free(1),
        OutOfMemory(1 << 40, 5 * MIB, site),
        Alloc(9, 2 * MIB),
    ]
    return replay(Trace("predicted", events, marks=[Mark("forward", 0, 1), Mark("backward", 2, 1)]))


def test_a_written_trace_comes_back_equal(tmp_path: Path) -> None:
    """Sizes, addresses, streams, categories, modules and marks survive; ids become event numbers."""
    path, given = tmp_path / "a.pickle", program()
    path.write_bytes(dumps(given))
    read = load(path)
    read.check()
    assert read.marks == given.marks
    assert len(read.events) == len(given.events)
    for ours, theirs in zip(given.events, read.events, strict=True):
        assert type(ours) is type(theirs)
        if isinstance(ours, Alloc) and isinstance(theirs, Alloc):
            # the file keeps a line as a stack of one frame
            assert ours == replace(theirs, id=ours.id, site=replace(theirs.site, frames=()))
    path.write_bytes(dumps(read))
    assert load(path).events == read.events


def test_a_trace_without_addresses_cannot_be_written() -> None:
    """The way out is named: place it first."""
    with pytest.raises(UsageError, match="address") as error:
        snapshot_dict(Trace("predicted", [Alloc(1, 512)]))
    assert "replay" in (error.value.hint or "")


def test_cut_files_are_one_clear_error(tmp_path: Path) -> None:
    """A snapshot cut at every hundredth of its length names its path and what is wrong."""
    whole, path = dumps(program()), tmp_path / "cut.pickle"
    for percent in range(100):
        path.write_bytes(whole[: len(whole) * percent // 100])
        with pytest.raises(RecordError, match=r"cut\.pickle"):
            load_snapshot(path)


def test_flipped_bits_never_crash(tmp_path: Path) -> None:
    """10,000 snapshots with a few random bits flipped: a Trace whose events can be walked, or one error.

    The last 500 are measured: none needs more than three times the file and 200 MiB.
    """
    whole, path, dice, errors = dumps(program()), tmp_path / "flipped.pickle", random.Random(7), 0
    try:
        for number in range(10_000):
            if number == 9_500:
                tracemalloc.start(1)
            data = bytearray(whole)
            for _ in range(dice.randint(1, 4)):
                data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
            path.write_bytes(data)
            try:
                load_snapshot(path).timeline()
            except (RecordError, UsageError):
                errors += 1
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 3_000 < errors < 10_000
    assert peak < 3 * len(whole) + 200 * MIB


def test_the_command_survives_flipped_bits(tmp_path: Path) -> None:
    """What still loads is shown whole: replay, causes, modules, steps; 500 files."""
    whole, path, dice, shown = dumps(program()), tmp_path / "flipped.pickle", random.Random(8), 0
    for _ in range(500):
        data = bytearray(whole)
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        path.write_bytes(data)
        try:
            trace = load_snapshot(path)
        except (RecordError, UsageError):
            continue
        shown += 1
        explain(trace).to_dict(replay=True)
    assert shown > 50


FIGURES = {  # MiB: allocated at the start, at the peak, at the end; reserved at the end
    "transformer_from_start": (0, 3098.626, 30.25, 3606),
    "transformer_small_forward_ctx128": (500.95, 532.45, 500.95, 582),
    "transformer_medium_train_ctx128": (4867.25, 6696.41, 6501.09, 6900),
    "transformer_medium_train_ctx512": (4867.95, 11859.40, 6521.33, 12074),
    "transformer_medium_inference_ctx256": (1624.43, 1712.55, 1624.43, 1778),
}


@pytest.mark.shared
@pytest.mark.parametrize("name", FIGURES)
def test_real_recordings_read_to_the_published_figures(shared: Path, name: str) -> None:
    """Allocated and reserved memory of a real GPU, to a hundredth of a MiB."""
    trace = load_snapshot(shared / "truth" / "snapshots" / f"{name}.pickle")
    trace.check()
    timeline, start = trace.timeline(), trace.metadata["baseline_events"]
    found = (
        timeline.allocated[start - 1] if start else 0,
        timeline.peak_allocated_bytes,
        timeline.allocated[-1],
        timeline.reserved[-1],
    )
    assert [size / MIB for size in found] == pytest.approx(list(FIGURES[name]), abs=0.006)


@pytest.mark.shared
@pytest.mark.parametrize("name", FIGURES)
def test_real_recordings_survive_a_round_trip(shared: Path, tmp_path: Path, name: str) -> None:
    """Written and read again, a real recording and its replayed form are equal, event for event."""
    recording = load_snapshot(shared / "truth" / "snapshots" / f"{name}.pickle")
    for trace in (recording, verify(recording).trace):
        path = tmp_path / "again.pickle"
        path.write_bytes(dumps(trace))
        again = load_snapshot(path)
        assert again.events == trace.events
        assert again.baseline_allocated_bytes == trace.baseline_allocated_bytes


def test_what_the_profiler_named_becomes_marks() -> None:
    """Beginnings by time, counted by name; ends and other devices are left out."""
    data = snapshot([event("oom", 0, 512, 10 * n, device_free=0) for n in range(4)])
    named = {"stage": "START", "name": "step", "device": 0}
    data["external_annotations"] = [
        named | {"time_us": 1015},
        named | {"time_us": 1018, "stage": "END"},
        named | {"time_us": 1030},
        named | {"time_us": 1030, "device": 1},
    ]
    assert trace_of(data).marks == [Mark("step", 2, 1, 15), Mark("step", 3, 2, 30)]


def test_repeated_events_are_refused() -> None:
    """One event dict ten times over, as only a file made to fill the memory has it."""
    with pytest.raises(ValueError, match="repeats"):
        trace_of(snapshot([event("alloc", 0, 512)] * 10))
