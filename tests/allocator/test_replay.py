"""Traces through the allocator, and recordings against it."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from memlens.allocator import AllocatorConfig, from_snapshot, parse_config, replay, verify
from memlens.allocator.rules import round_request, segment_bytes
from memlens.explanation.oom_cause import causes
from memlens.model import Alloc, Event, Free, Mark, OutOfMemory, SegmentAlloc, SegmentFree, Trace
from memlens.records.snapshot_writer import snapshot_dict
from memlens.records.torch_snapshot import load_snapshot, trace_of
from memlens.units import MIB


def trace(*sizes_mib: float, then_free: tuple[int, ...] = ()) -> Trace:
    """Allocations 0, 1, ... of so many MiB, then some freed."""
    events = [Alloc(number, int(size * MIB)) for number, size in enumerate(sizes_mib)]
    return Trace("predicted", [*events, *(Free(number) for number in then_free)])


def test_replay_places_every_allocation() -> None:
    """Blocks get sizes, addresses and segments, and the sums of the new trace close."""
    placed = replay(trace(19, 4, then_free=(0,)))
    placed.check()
    assert [event.bytes for event in placed.events if isinstance(event, SegmentAlloc)] == [20 * MIB, 20 * MIB]
    first = placed.allocations()[0]
    assert (first.bytes, first.requested) == (20 * MIB, 19 * MIB)
    assert placed.timeline().peak_reserved_bytes == 40 * MIB


def test_marks_move_with_the_events() -> None:
    """A mark stays before the event that it stood before, segments included."""
    given = trace(4, 30)
    given.marks = [Mark("forward", 0), Mark("backward", 1), Mark("end", 2)]
    assert [mark.index for mark in replay(given).marks] == [0, 2, 4]


def test_replay_ends_where_the_device_is_full() -> None:
    """30 + 30 MiB on a device of 50 end with an OutOfMemory of the second request."""
    last = replay(trace(30, 30), capacity_bytes=50 * MIB).events[-1]
    assert last == OutOfMemory(30 * MIB, 20 * MIB)


def test_empty_cache_in_a_trace_is_replayed() -> None:
    """Segments that a trace gave back by itself go back again; those of a retry do not count as a call."""
    freed = [Alloc(0, 30 * MIB), Free(0), SegmentFree(0, 30 * MIB)]
    assert replay(Trace("measured", freed)).timeline().reserved[-1] == 0
    retried = [*freed, SegmentAlloc(0, 40 * MIB), Alloc(1, 40 * MIB)]
    assert replay(Trace("measured", retried)).timeline().reserved[-1] == 70 * MIB


def test_a_replayed_trace_verifies() -> None:
    """The allocator agrees with itself, and notices one address or one segment that is wrong."""
    placed = replay(trace(4, 0.1, 12, 4, then_free=(0, 2)))
    assert verify(placed).agrees
    placed.allocations()[3].address = 512
    assert verify(placed).address_mismatches == 1
    segment = next(event for event in placed.events if isinstance(event, SegmentAlloc))
    segment.bytes *= 2
    assert verify(placed).segment_mismatches == 1


def test_a_recording_from_the_middle_starts_from_what_it_found() -> None:
    """8 MiB alive in a 20 MiB segment at the start: the next 4 MiB come right behind them."""
    base = 1 << 40
    recording = Trace(
        "imported",
        [
            SegmentAlloc(base, 20 * MIB),
            Alloc(1, 8 * MIB, address=base),
            Alloc(2, 4 * MIB, address=base + 8 * MIB),
        ],
        metadata={"baseline_events": 2},
    )
    checked = verify(recording)
    assert (checked.allocations, checked.agrees, checked.complete) == (1, True, False)


def test_a_rest_at_the_start_is_found_from_what_follows() -> None:
    """4 MiB known, the next block 4.5 MiB further: the first was given 4.5 MiB whole."""
    base = 1 << 40
    recording = Trace(
        "imported",
        [
            SegmentAlloc(base, 20 * MIB),
            Alloc(1, 4 * MIB, address=base),
            Alloc(2, 2 * MIB, address=base + 4 * MIB + MIB // 2),
        ],
        metadata={"baseline_events": 2},
    )
    checked = verify(recording)
    assert checked.agrees
    assert checked.trace.allocations()[1].bytes == 4 * MIB + MIB // 2


def test_a_fragmented_device_is_told_from_a_full_one() -> None:
    """6 MiB pin a segment of 36: 30 free in it and 44 on the device are no 50; expandable segments are."""
    program = [Alloc(0, 36 * MIB), Free(0), Alloc(1, 6 * MIB), Alloc(2, 50 * MIB)]
    (cause,) = causes(replay(Trace("measured", program), capacity_bytes=80 * MIB), AllocatorConfig())
    assert (cause.use.largest_free_bytes, cause.event.free_bytes) == (30 * MIB, 44 * MIB)
    assert cause.fragmented
    assert cause.expandable_fits
    assert "fragmentation" in cause.text()


def test_a_full_device_is_said_to_be_full() -> None:
    """60 MiB beside 60 on a device of 80: 40 MiB are missing, and no setting helps."""
    (cause,) = causes(replay(trace(60, 60), capacity_bytes=80 * MIB), AllocatorConfig())
    assert not cause.fragmented
    assert cause.missing_bytes == 40 * MIB
    assert cause.expandable_fits is False
    assert "40.00 MiB too little" in cause.text()


COMPLETE = {"opt_zeroth_order_training": 7946, "transformer_from_start": 36}
FROM_THE_MIDDLE = {
    "transformer_small_forward_ctx128": 681,
    "transformer_medium_train_ctx128": 6526,
    "transformer_medium_train_ctx512": 7591,
    "transformer_medium_inference_ctx256": 1280,
}


@pytest.mark.shared
@pytest.mark.parametrize(("name", "allocations"), (COMPLETE | FROM_THE_MIDDLE).items())
def test_real_recordings_replay_exactly(shared: Path, name: str, allocations: int) -> None:
    """A real GPU's addresses, segments and reserved bytes, every one of them."""
    recording = load_snapshot(shared / "truth" / "snapshots" / f"{name}.pickle")
    checked = verify(recording, from_snapshot(recording.metadata["allocator_settings"]))
    checked.trace.check()
    assert checked.allocations == allocations
    assert (checked.address_mismatches, checked.segment_mismatches) == (0, 0)
    assert checked.replayed_reserved_bytes == checked.recorded_reserved_bytes
    assert checked.complete is (name in COMPLETE)


@pytest.mark.shared
@pytest.mark.parametrize("name", [*COMPLETE, *FROM_THE_MIDDLE])
def test_recorded_segments_have_the_size_of_the_rules(shared: Path, name: str) -> None:
    """Each segment_alloc is what the rules ask the driver for, for the allocation that follows it."""
    recording = load_snapshot(shared / "truth" / "snapshots" / f"{name}.pickle")
    start = recording.metadata["baseline_events"]
    for event, following in zip(recording.events[start:], recording.events[start + 1 :], strict=False):
        if isinstance(event, SegmentAlloc):
            assert isinstance(following, Alloc)
            size = round_request(following.requested, AllocatorConfig())
            assert event.bytes == segment_bytes(size, AllocatorConfig())


def wild_program(seed: int, length: int = 200) -> Trace:
    """Random requests on two streams, half of them freed, the cache emptied now and then."""
    dice, events, living = Random(seed), list[Event](), list[int]()
    sizes = [512, 3000, 70_000, MIB, MIB + 5, 3 * MIB, 9 * MIB + MIB // 2, 19 * MIB, 33 * MIB]
    for number in range(length):
        chance = dice.random()
        if chance < 0.01:
            events.append(SegmentFree(0, 0))  # a call of empty_cache
        elif living and chance < 0.48:
            events.append(Free(living.pop(dice.randrange(len(living)))))
        else:
            size = dice.choice([*sizes, dice.randrange(1, 40 * MIB)])
            events.append(Alloc(number, size, stream=dice.choice([0, 0, 7])))
            living.append(number)
    return Trace("measured", events)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    "settings",
    [
        "",
        "expandable_segments:True",
        "max_split_size_mb:32",
        "roundup_power2_divisions:4",
        "large_segment_size_mb:40",
    ],
)
def test_a_recording_that_lost_its_beginning_still_verifies(settings: str, seed: int) -> None:
    """A ring buffer that kept the last events only: the state before them is found, block for block."""
    config = parse_config(settings)
    whole = replay(wild_program(seed), config)
    assert verify(whole, config).agrees
    snapshot = snapshot_dict(whole)
    (events,) = snapshot["device_traces"]
    for event in events:
        event.pop("block_size", None)  # PyTorch does not write it
    for lost in (40, 100, 190):
        kept = trace_of(snapshot | {"device_traces": [events[lost:]]})
        kept.check()
        checked = verify(kept, config)
        assert checked.agrees
        assert not checked.complete
        assert checked.trace.timeline().allocated[-1] == whole.timeline().allocated[-1]
