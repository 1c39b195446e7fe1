"""Two records side by side, built event by event."""

from __future__ import annotations

import pytest

from memlens.explanation.comparison import Difference, compare_traces, place
from memlens.model import (
    Alloc,
    Assumption,
    Category,
    Device,
    Free,
    Mark,
    Process,
    Sample,
    SegmentAlloc,
    Site,
    Trace,
)


def alloc(number: int, size: int, category: Category = Category.ACTIVATION, **site: object) -> Alloc:
    return Alloc(number, size, category, Site(**site))  # type: ignore[arg-type]


def row(rows: list[Difference], key: str) -> Difference:
    (found,) = [each for each in rows if each.key == key]
    return found


def test_totals_of_both_peaks() -> None:
    """Each record's own peak is compared, with what was reserved, and the process with its context."""
    card = Device("card", 1 << 30, (8, 0), (10, 20, 30))
    a = Trace("predicted", [SegmentAlloc(0, 4096), Alloc(1, 1024), Free(1), Alloc(2, 512)], card)
    b = Trace("measured", [Alloc(1, 2048)])
    rows = compare_traces(a, b).of("total")
    assert row(rows, "allocated at the peak").delta_bytes == 1024
    assert row(rows, "allocated at the end").delta_bytes == 1536
    assert (row(rows, "reserved at its peak").a_bytes, row(rows, "reserved at its peak").b_bytes) == (
        4096,
        None,
    )
    assert row(rows, "process at its peak").a_bytes == 4116


def test_phases_are_aligned_by_name_and_step() -> None:
    """The second step's backward of one is compared with that of the other, wherever it stands."""

    def trace(forward: int, backward: int) -> Trace:
        events = [Alloc(1, forward), Alloc(2, backward), Free(2)]
        return Trace("measured", events, marks=[Mark("forward", 0, 2), Mark("backward", 1, 2)])

    rows = compare_traces(trace(512, 1024), trace(512, 4096)).of("phase")
    assert [(each.key, each.delta_bytes) for each in rows] == [
        ("backward, step 2", 3072),
        ("forward, step 2", 0),
    ]


def test_holders_at_the_peak_sum_to_it() -> None:
    """Categories, modules and lines of a record each add up to its allocated peak."""
    a = Trace("predicted", [
        alloc(1, 512, Category.PARAMETER, module="fc", file="/home/me/net.py", line=3),
        alloc(2, 2048, module="fc", file="/home/me/net.py", line=7),
    ])  # fmt: skip
    b = Trace("measured", [
        alloc(1, 512, Category.PARAMETER, module="fc", file="/data/me/net.py", line=3),
        alloc(2, 1024, module="fc", file="/data/me/net.py", line=7),
        alloc(3, 256, module="head", file="/data/me/net.py", line=9),
    ])  # fmt: skip
    found = compare_traces(a, b)
    for kind in ("category", "module", "line"):
        assert sum(each.a_bytes or 0 for each in found.of(kind)) == 2560
        assert sum(each.b_bytes or 0 for each in found.of(kind)) == 1792
    assert row(found.of("line"), "me/net.py:7").reason == "the same 1 allocations, each 0.5 times as large"
    assert row(found.of("module"), "head").reason == "only in B"
    assert [each.key for each in found.differences("line")] == ["me/net.py:7", "me/net.py:9"]


def test_the_number_of_allocations_is_a_reason() -> None:
    """Ten batches kept instead of one show as ten allocations."""
    kept = [alloc(number, 512, file="loop.py", line=4) for number in range(10)]
    found = compare_traces(Trace("measured", kept[:1]), Trace("measured", kept))
    assert row(found.of("line"), "loop.py:4").reason == "10 allocations instead of 1"


def test_a_record_without_categories_proves_nothing() -> None:
    """A snapshot that says nothing of an allocation's purpose is not one without parameters."""
    a = Trace("predicted", [alloc(1, 512, Category.PARAMETER)])
    b = Trace("imported", [Alloc(1, 512)])
    rows = compare_traces(a, b).of("category")
    assert row(rows, "parameters").reason == "the other record does not say what allocations are for"
    assert row(rows, "unknown").reason == "the other record says what each is for"


def test_modules_are_left_out_where_one_record_has_none() -> None:
    """A table in which everything differs for that reason alone would hide the rest."""
    a = Trace("predicted", [alloc(1, 512, module="fc")])
    assert compare_traces(a, Trace("imported", [Alloc(1, 512)])).of("module") == []


def test_sampled_runs_compare_by_process() -> None:
    """Of two runs that were watched from outside the peaks of resident memory are compared."""

    def trace(size: int) -> Trace:
        return Trace("measured", [Sample(0, 7, size)], processes=[Process(7, "train.py")])

    (only,) = compare_traces(trace(1000), trace(1500)).rows
    assert (only.key, only.delta_bytes) == ("peak resident memory (RSS)", 500)


def test_a_comparison_in_one_line() -> None:
    """The first total that both records know."""
    allocated = Trace("predicted", [Alloc(1, 2048)])
    sampled = Trace("measured", [Sample(0, 7, 1000)], processes=[Process(7, "train.py")])
    other = Trace("measured", [Alloc(1, 512)])
    assert repr(compare_traces(allocated, other, ("p", "m"))) == (
        "<Comparison: p (predicted) and m (measured): allocated at the peak 2.00 KiB and 512 B>"
    )
    assert repr(compare_traces(allocated, sampled)) == "<Comparison: A (predicted) and B (measured)>"


def test_notes_say_what_is_hard_to_compare() -> None:
    """Other cards, assumptions and recordings from the middle of a run are written below."""
    a = Trace("predicted", [Alloc(1, 512)], Device("T4"), assumptions=[Assumption("cuDNN", "", -1024, 2048)])
    b = Trace("imported", [Alloc(1, 512)], Device("A100"), baseline_allocated_bytes=5)
    notes = "\n".join(compare_traces(a, b, ("p", "m")).notes)
    assert "p assumes: cuDNN (may move its peak by -1.00 KiB to +2.00 KiB)" in notes
    assert "m was recorded from the middle of a run" in notes
    assert "the devices differ: T4 and A100" in notes
    b.device = Device("cuda:0")  # a snapshot's
    assert not any("devices" in note for note in compare_traces(a, b).notes)


@pytest.mark.parametrize(("file", "key"), [
    ("/home/me/proj/net.py", "proj/net.py:1"),
    ("C:\\me\\proj\\net.py", "proj/net.py:1"),
    ("net.py", "net.py:1"),
    ("/net.py", "net.py:1"),
    ("", "(no line known)"),
])  # fmt: skip
def test_a_line_is_known_by_folder_and_file(file: str, key: str) -> None:
    """The same file in another checkout, or on another system, is the same line."""
    assert place(Alloc(1, 1, site=Site(file, 1))) == key
