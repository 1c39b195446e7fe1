"""Curves of processes, and what a run comes to."""

from __future__ import annotations

from array import array

from memlens.explanation.curves import Curve, curves, sampled_curves, total
from memlens.explanation.usage import usage
from memlens.model import Process, Sample, Trace


def run() -> Trace:
    """A program of 100 that grows to 300, with a child of 50 from 10 to 20 and one of 70 from 15 on."""
    trace = Trace("measured")
    trace.events = [
        Sample(0, 7, 100), Sample(10, 7, 100), Sample(10, 8, 50),
        Sample(20, 7, 300), Sample(20, 9, 70), Sample(30, 7, 100), Sample(30, 9, 70),
    ]  # fmt: skip
    trace.processes = [
        Process(9, "late", 7, 15),
        Process(7, "main", None, 0, ended_us=40, peak_rss_bytes=310),
        Process(8, "early", 7, 10, ended_us=20),
    ]
    return trace


def test_the_program_comes_first_then_children_by_start() -> None:
    """The order of curves is the order of lives, whatever the order in which they were noted."""
    assert [curve.name for curve in curves(run())] == ["main", "early", "late"]


def test_the_sum_counts_a_process_until_its_end() -> None:
    """At 10: 100 + 50; at 20, when the early one was found gone: 300 + 70, not what it held before too."""
    whole = total(curves(run()))
    assert [whole.bytes_at(time) for time in (0, 10, 19, 20, 30)] == [100, 150, 150, 370, 170]


def test_the_high_water_mark_is_above_every_sample() -> None:
    """310 was held between two samples: it is the peak, and has no time."""
    found = usage(run())
    assert (found.program["rss"].bytes, found.program["rss"].time_us) == (310, None)
    assert found.whole["rss"].bytes == 370
    assert found.elapsed_us == 40


def test_a_pid_used_twice_is_two_processes() -> None:
    """The system gives a number again after its process has ended: its samples are not mixed."""
    trace = Trace("measured", [Sample(0, 5, 10), Sample(100, 5, 20)])
    trace.processes = [Process(5, "first", None, 0, ended_us=50), Process(5, "second", 1, 90)]
    assert [(curve.name, list(curve.bytes)) for curve in curves(trace)] == [("first", [10]), ("second", [20])]


def test_a_figure_that_was_never_read_has_no_curve() -> None:
    """A figure that the system did not give is absent, not 0."""
    assert curves(run(), "gpu") == []
    assert usage(run()).to_dict()["program"]["peak_gpu_bytes"] is None


def test_a_recording_of_the_sum_shows_one_curve() -> None:
    """With -C the sum is what is drawn."""
    trace = run()
    trace.metadata["include_children"] = True
    assert [(curve.name, curve.peak_bytes) for curve in sampled_curves(trace)] == [
        ("main and 2 children", 370)
    ]


def test_a_window_keeps_the_points_inside() -> None:
    """Both ends count; the high-water mark, which has no time, does not."""
    part = curves(run())[0].between(5, 25)
    assert (list(part.bytes), part.peak_bytes) == ([100, 300], 300)


def test_a_process_too_short_to_be_sampled_is_known_of() -> None:
    """The system counted 999 in one process, no sample saw it: said apart, unless below the samples."""
    trace = run()
    trace.metadata["largest_process_bytes"] = 999
    assert usage(trace).largest_process_bytes == 999
    trace.metadata["largest_process_bytes"] = 305
    assert usage(trace).largest_process_bytes is None


def test_a_program_too_short_for_a_sample_has_its_mark() -> None:
    """Without any sample the peak is the system's mark, where the program could tell it."""
    trace = Trace("measured", processes=[Process(7, "hello.py", None, 0, 9, peak_rss_bytes=77)])
    found = usage(trace)
    assert (found.program["rss"].bytes, found.program["rss"].readings, found.elapsed_us) == (77, 0, 9)


def test_the_sum_is_never_below_one_of_its_parts() -> None:
    """A mark of the system's between two samples of one process is in the peak of all together, too."""
    parts = [
        Curve(1, "a", None, 0, 20, array("q", [0, 10]), array("q", [50, 60]), high_water_bytes=200),
        Curve(2, "b", 1, 0, 20, array("q", [0, 10]), array("q", [30, 30])),
    ]
    assert total(parts).sampled_peak == (90, 10)
    assert total(parts).peak_bytes == 200


def test_a_process_that_is_gone_adds_nothing_to_the_sum() -> None:
    """At every moment the curves of all processes add up to the sum's, also where one was found gone."""
    samples = [Sample(0, 7, 100), Sample(0, 8, 50), Sample(10, 7, 120), Sample(20, 7, 90)]
    processes = [Process(7, "a", ended_us=25), Process(8, "b", parent=7, ended_us=10)]
    each = curves(Trace("measured", samples, processes=processes))
    whole = total(each)
    for time_us in range(26):
        assert sum(curve.bytes_at(time_us) for curve in each) == whole.bytes_at(time_us), time_us
