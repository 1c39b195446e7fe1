"""Records from anywhere: what makes no sense is refused when it is read: no command trips over it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from memlens.errors import RecordError
from memlens.explanation.over_time import figure_of
from memlens.explanation.usage import usage
from memlens.model import Alloc, Free, Mark, Process, Sample, SegmentAlloc, Span, Trace
from memlens.model.lines import Left, LineRow, LineTable
from memlens.records import load, native
from memlens.render.timeline import describe, draw

HUGE = 1 << 63


def reread(trace: Trace, folder: Path) -> Trace:
    native.save(trace, folder / "x.memlens")
    return load(folder / "x.memlens")


@pytest.mark.parametrize(
    "parts",
    [
        {"events": [Free(9)]},
        {"events": [Alloc(1, 512), Free(1), Free(1)]},
        {"events": [Alloc(1, 512), Alloc(1, 512)]},
        {"events": [Alloc(1, -512)]},
        {"events": [Alloc(1, HUGE)]},
        {"events": [Alloc(number, (1 << 60) - 1) for number in range(5)]},
        {"events": [Alloc(1, 512, time_us=HUGE)]},
        {"events": [SegmentAlloc(HUGE, 512)]},
        {"events": [Sample(0, 7, -1)]},
        {"events": [Sample(HUGE, 7, 1)]},
        {"marks": [Mark("a", 1)]},
        {"marks": [Mark("a", -1)]},
        {"events": [Alloc(1, 512)], "marks": [Mark("a", 1), Mark("b", 0)]},
        {"spans": [Span("f", HUGE, 0)]},
        {"processes": [Process(7, "x", None, HUGE)]},
        {"metadata": {"baseline_events": 1}},
        {"metadata": {"baseline_events": -1}},
        {"baseline_allocated_bytes": -1},
    ],
)
def test_what_makes_no_sense_is_damaged(parts: dict[str, Any], tmp_path: Path) -> None:
    """Frees of nothing, numbers that no array holds, marks beyond the end: one clear error."""
    with pytest.raises(RecordError, match=r"x\.memlens is damaged: "):
        reread(Trace("measured", **parts), tmp_path)


KNOWN = [
    "command", "figure", "include_children", "exit_code", "gpu", "largest_process_bytes", "top_lines",
    "lines", "complete", "baseline_events", "allocator_settings",
]  # fmt: skip
JUNK = [None, "x", -5, 1 << 62, 3.5, [], {}, [1, 2], {"a": 1}, True]


@pytest.mark.parametrize("key", KNOWN)
def test_metadata_of_another_type_is_refused_or_harmless(key: str, tmp_path: Path) -> None:
    """A record whose metadata is anything at all is an error, or is drawn and described as any other."""
    refused = 0
    for value in JUNK:
        trace = Trace("measured", [Sample(0, 7, 5), Sample(9, 7, 7)], metadata={key: value})
        try:
            read = reread(trace, tmp_path)
        except RecordError:
            refused += 1
            continue
        assert draw(read, figure=figure_of(read))
        assert describe(usage(read))
    assert refused >= 6


TABLE = LineTable(
    "a.py", "f", 1, 1, 0, (LineRow(2, "x = 1", 3, gpu_left=(Left(1, (2,), "float32", "tensor", 8),)),)
)


@pytest.mark.parametrize(
    "wrong",
    [
        {"calls": "3"},
        {"rows": 7},
        {"rows": [{"line": "2"}]},
        {"rows": [{"line": 2, "usage_bytes": [5]}]},
        {"rows": [{"line": 2, "usage_bytes": HUGE - 1}]},
        {"rows": [{"line": 2, "gpu_left": [[1, [2], "float32", "tensor", 1 << 61]]}]},
        {"start_bytes": 1.5},
    ],
)
def test_a_table_by_line_has_the_types_of_one(wrong: dict[str, Any], tmp_path: Path) -> None:
    """A count is a number and a row is a row, before any renderer sees them."""
    assert reread(Trace("measured", metadata={"lines": [TABLE.to_dict()]}), tmp_path)
    with pytest.raises(RecordError, match=r"x\.memlens is damaged: "):
        reread(Trace("measured", metadata={"lines": [TABLE.to_dict() | wrong]}), tmp_path)


def test_users_own_metadata_may_be_anything(tmp_path: Path) -> None:
    """Only the names that memlens writes have types."""
    trace = Trace("measured", metadata={"mine": [1, {"a": None}], "gpu": None, "exit_code": -9})
    assert reread(trace, tmp_path) == trace


def test_a_size_beyond_all_memory_in_an_old_record(tmp_path: Path) -> None:
    """mprof's text can say anything, too."""
    (tmp_path / "x.dat").write_text("CMDLINE x\nMEM 1e300 5.0\n")
    with pytest.raises(RecordError, match="is damaged: rss_bytes of Sample is"):
        load(tmp_path / "x.dat")
