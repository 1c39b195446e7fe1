"""mprof's record: old files open, ours open in mprof."""

from __future__ import annotations

from pathlib import Path

import pytest

from memlens.errors import RecordError
from memlens.explanation.curves import curves
from memlens.model import Process, Sample, Span, Trace
from memlens.records import load, mprofile
from memlens.units import MIB

DAT = """\
CMDLINE python train.py --epochs 3
MEM 10.000000 1700000000.1000
FUNC __main__.load 10.0000 1700000000.0500 30.5000 1700000000.1500 0
MEM 30.500000 1700000000.2000
CHLD 4712 20.250000 1700000000.2000
MEM 12.000000 1700000000.3000
"""


def test_an_mprof_record_opens(tmp_path: Path) -> None:
    """The program's and a child's curve, and the function's call, with mprof's MiB as bytes."""
    path = tmp_path / "mprofile_20260131235959.dat"
    path.write_text(DAT)
    trace = load(path)
    assert trace.metadata["command"] == "python train.py --epochs 3"
    program, child = curves(trace)
    assert (program.name, program.peak_bytes) == ("python train.py --epochs 3", round(30.5 * MIB))
    assert (child.pid, child.parent, list(child.bytes)) == (4712, mprofile.PROGRAM, [round(20.25 * MIB)])
    start = 1_700_000_000_000_000
    assert trace.spans == [
        Span("__main__.load", start + 50_000, start + 150_000, 10 * MIB, round(30.5 * MIB), 0, 0)
    ]


def test_what_is_written_reads_back(tmp_path: Path) -> None:
    """Samples and spans come back to the byte and the microsecond, the program's pid as 0."""
    trace = Trace("measured", metadata={"command": "a b"})
    trace.processes = [Process(50, "a", None, 1_000_001), Process(51, "b", 50, 1_000_002)]
    trace.events = [Sample(1_000_003, 50, 4097), Sample(1_000_003, 51, 123_456_789), Sample(1_100_003, 50, 1)]
    trace.spans = [Span("f g", 1_000_003, 1_000_009, 5, 7, 1, 50)]
    path = tmp_path / "x.dat"
    mprofile.save(trace, path)
    read = load(path)
    assert [(s.time_us, s.pid, s.rss_bytes) for s in read.events] == [
        (1_000_003, 0, 4097), (1_000_003, 51, 123_456_789), (1_100_003, 0, 1),
    ]  # fmt: skip
    assert read.spans == [Span("f g", 1_000_003, 1_000_009, 5, 7, 1, 0)]


def test_the_sum_over_children_is_one_curve(tmp_path: Path) -> None:
    """With include_children mprof writes one MEM line a tick: the sum."""
    trace = Trace("measured", [Sample(10, 1, MIB), Sample(10, 2, 2 * MIB)], processes=[Process(1, "a")])
    mprofile.save(trace, tmp_path / "x.dat", sum_children=True)
    assert (tmp_path / "x.dat").read_text().splitlines()[1] == "MEM 3.0000000 0.000010"


def test_a_torn_last_line_is_dropped_with_a_note(tmp_path: Path) -> None:
    """A recorder that was killed leaves half a line; everything before it counts."""
    path = tmp_path / "x.dat"
    path.write_text(DAT + "MEM 12.0000")
    trace = load(path)
    assert len(trace.events) == 4
    assert trace.assumptions[0].what == "the record ends early"


@pytest.mark.parametrize("line", ["MEM 12", "MEM x 5", "FUNC f 1 2 3", "CHLD a 1 2", "HELLO", "MEM inf 5"])
def test_a_bad_line_is_one_error(tmp_path: Path, line: str) -> None:
    """A line in the middle that is not mprof's is an error with its number and what it says."""
    path = tmp_path / "x.dat"
    path.write_text(f"CMDLINE x\n{line}\nMEM 1 2\n")
    with pytest.raises(RecordError, match=f"line 2 says '{line}'"):
        load(path)


def test_calls_of_old_files_get_their_level(tmp_path: Path) -> None:
    """mprof before 0.60 wrote no level: a call inside another one is one deeper."""
    path = tmp_path / "old.dat"
    path.write_text(
        "CMDLINE old.py\nMEM 10.0 1700000000.1000\n"
        "FUNC inner 10.0 1700000000.1000 12.0 1700000000.2000\n"
        "FUNC outer 10.0 1700000000.0500 12.0 1700000000.3000\n"
        "FUNC after 10.0 1700000000.4000 12.0 1700000000.5000\n"
    )
    spans = load(path).spans
    assert [(span.name, span.level) for span in spans] == [("inner", 1), ("outer", 0), ("after", 0)]
    assert spans[0].ended_us - spans[0].started_us == 100_000


def test_bytes_that_are_no_utf8_are_spelt_out(tmp_path: Path) -> None:
    """A command line from another encoding: what is read can be printed and saved anywhere."""
    path = tmp_path / "latin.dat"
    path.write_bytes(b"CMDLINE caf\xe9.py\nMEM 10.0 1700000000.1\n")
    trace = load(path)
    assert trace.metadata["command"] == "caf\\xe9.py"
    mprofile.save(trace, tmp_path / "again.dat")
    assert load(tmp_path / "again.dat").metadata["command"] == "caf\\xe9.py"
