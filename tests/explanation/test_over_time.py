"""The course of allocations: which moments are drawn, and what they say."""

from __future__ import annotations

import random

import pytest

from memlens.explanation.over_time import EVENTS, SECONDS, build_series, pick, places_of
from memlens.model import Alloc, Category, Free, SegmentAlloc, Trace


def make(number: int, seed: int = 0) -> Trace:
    """Random allocations and frees, with times, of which one is far above the others."""
    random_ = random.Random(seed)
    trace, live = Trace("measured", [SegmentAlloc(0, 1 << 30)]), list[int]()
    for index in range(number):
        if live and random_.random() < 0.5:
            trace.events.append(Free(live.pop(random_.randrange(len(live))), index * 7))
        else:
            size = 512 * random_.randrange(1, 100)
            kind = random_.choice((Category.ACTIVATION, Category.TEMPORARY))
            trace.events.append(Alloc(index, size, kind, time_us=index * 7))
            live.append(index)
    trace.events.insert(number // 3, Alloc(-1, 1 << 24, Category.INPUT, time_us=number // 3 * 7))
    trace.events.insert(number // 3 + 1, Free(-1, number // 3 * 7))
    return trace


@pytest.mark.parametrize("seed", range(5))
def test_a_thinned_course_keeps_both_peaks(seed: int) -> None:
    """Of 20,000 events about 1,000 are drawn, and the highest moment, one event long, is among them."""
    trace = make(20_000, seed)
    drawn, timeline = build_series(trace, 1000), trace.timeline()
    assert drawn.is_thinned
    assert len(drawn.indices) <= 1000
    assert max(drawn.allocated) == timeline.peak_allocated_bytes
    assert max(drawn.reserved) == timeline.peak_reserved_bytes
    assert timeline.peak_index in drawn.indices


def test_categories_add_up_at_every_moment() -> None:
    """What is drawn for each category is together what is allocated, baseline included."""
    trace = make(3000)
    trace.baseline_allocated_bytes = 4096
    drawn = build_series(trace, 100)
    sums = [sum(sizes[i] for sizes in drawn.categories.values()) for i in range(len(drawn.indices))]
    assert sums == list(drawn.allocated)
    assert set(drawn.categories[Category.UNKNOWN]) == {4096}


def test_a_short_trace_is_drawn_whole() -> None:
    """No event of 100 is left out."""
    drawn = build_series(make(100))
    assert list(drawn.indices) == list(range(103))
    assert not drawn.is_thinned


def test_a_window_is_drawn_with_all_its_events() -> None:
    """Between 700 and 1400 us lie 101 events of the whole 20,000."""
    drawn = build_series(make(20_000), 1000, window=(700, 1400))
    assert (len(drawn.indices), drawn.places[0], drawn.places[-1]) == (101, 700, 1400)


def test_a_prediction_has_an_order_and_no_times() -> None:
    """Its axis counts events; a recording's is in seconds, and no event stands before the one in front."""
    assert build_series(Trace("predicted", [Alloc(1, 512), Free(1)])).axis is EVENTS
    timed = Trace("measured", [Alloc(1, 512, time_us=5), SegmentAlloc(0, 512), Free(1, 9)])
    assert build_series(timed).axis is SECONDS
    assert list(places_of(timed)) == [5, 5, 9]


def test_what_was_there_before_is_one_moment() -> None:
    """Of three events that stand for the start of a recording only the last is drawn."""
    trace = Trace("imported", [Alloc(0, 512), Alloc(1, 512), Alloc(2, 512), Free(0, 9)])
    trace.metadata["baseline_events"] = 3
    assert list(build_series(trace).allocated) == [1536, 1024]


def test_an_empty_trace_has_no_course() -> None:
    """Nothing is drawn of nothing."""
    assert list(build_series(Trace("measured")).indices) == []
    assert pick([5], [[7]], 10) == [0]
