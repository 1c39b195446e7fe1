"""The one record: sums close, and a broken record says where."""

from __future__ import annotations

import pytest

from memlens.model import Alloc, Category, Free, Mark, SegmentAlloc, SegmentFree, Trace


def test_the_peak_is_the_highest_sum_of_live_allocations() -> None:
    """512 and 1024 live together, then 2048 alone: the peak is 2048 at the last event."""
    trace = Trace("predicted", [Alloc(1, 512), Alloc(2, 1024), Free(1), Free(2), Alloc(3, 2048)])
    trace.check()
    timeline = trace.timeline()
    assert list(timeline.allocated) == [512, 1536, 1024, 0, 2048]
    assert (timeline.peak_index, timeline.peak_allocated_bytes) == (4, 2048)


def test_categories_add_up_to_allocated() -> None:
    """At the peak every live byte is in one category."""
    trace = Trace("predicted", [Alloc(1, 512, Category.PARAMETER), Alloc(2, 1024, Category.ACTIVATION)])
    assert trace.breakdown().by_category() == {Category.ACTIVATION: 1024, Category.PARAMETER: 512}
    assert trace.breakdown().allocated_bytes == 1536


def test_what_was_there_before_counts_as_unknown() -> None:
    """A recording that starts in mid-process closes its sums with the baseline."""
    trace = Trace("imported", [Alloc(1, 512)], baseline_allocated_bytes=2048)
    trace.check()
    assert trace.breakdown().by_category() == {Category.UNKNOWN: 512 + 2048}


@pytest.mark.parametrize(
    ("events", "says"),
    [
        ([Free(7)], "free of 7, which is not allocated"),
        ([Alloc(1, 512), Alloc(1, 512)], "id 1 was used before"),
        ([Alloc(1, 512), Free(1), Free(1)], "event 2: free of 1"),
        ([SegmentAlloc(0, 512), Alloc(1, 1024)], "1024 bytes allocated, only 512 reserved"),
        ([Alloc(1, 512, requested=600)], "512 bytes for a request of 600"),
    ],
)
def test_check_names_the_event_that_breaks_the_sums(events: list, says: str) -> None:
    """A record whose sums do not close is refused, with the number of the event."""
    with pytest.raises(AssertionError, match=says):
        Trace("predicted", events).check()


def test_marks_out_of_order_are_refused() -> None:
    """A phase cannot begin before the one before it."""
    with pytest.raises(AssertionError, match="out of order"):
        Trace("predicted", [Alloc(1, 512)], marks=[Mark("forward", 1), Mark("build", 0)]).check()


def test_phases_cover_the_events_between_marks() -> None:
    """Each mark holds from its event to the next mark's."""
    trace = Trace(
        "predicted", [Alloc(1, 512), Alloc(2, 512), Free(1)], marks=[Mark("build", 0), Mark("forward", 2)]
    )
    assert [(m.name, a, b) for m, a, b in trace.phases()] == [("build", 0, 2), ("forward", 2, 3)]
    assert trace.mark_at(2).name == "forward"


def test_a_trace_without_marks_has_no_phases() -> None:
    """Nothing was marked, so nothing is claimed."""
    assert list(Trace("predicted", [Alloc(1, 512)]).phases()) == []


def test_reserved_follows_segments() -> None:
    """Reserved grows with a segment and falls with its release."""
    events = [SegmentAlloc(0, 2 << 20), Alloc(1, 512), Free(1), SegmentFree(0, 2 << 20)]
    timeline = Trace("predicted", events).timeline()
    assert list(timeline.reserved) == [2 << 20, 2 << 20, 2 << 20, 0]
    assert timeline.peak_reserved_bytes == 2 << 20
