"""memlens' own record: equal after a round trip, readable after a kill, one error for a bad file."""

from __future__ import annotations

import os
import resource
import signal
import struct
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memlens.errors import RecordError
from memlens.model import (
    Alloc,
    Assumption,
    Category,
    Device,
    Frame,
    Free,
    Mark,
    OutOfMemory,
    Process,
    Sample,
    SegmentAlloc,
    SegmentFree,
    Site,
    Span,
    Trace,
)
from memlens.records import load as load_any
from memlens.records import native

INTS = st.integers(0, 2**62)
MAYBE = st.none() | INTS
NAMES = st.text(max_size=12)
SITES = st.builds(
    Site, NAMES, INTS, NAMES, st.none() | NAMES, NAMES, NAMES, st.booleans(),
    st.lists(st.builds(Frame, NAMES, INTS, NAMES), max_size=3).map(tuple),
)  # fmt: skip
EVENTS = st.one_of(
    st.builds(Alloc, INTS, INTS, st.sampled_from(Category), SITES, INTS, INTS, MAYBE, INTS),
    st.builds(Free, INTS, INTS),
    st.builds(SegmentAlloc, INTS, INTS, INTS, st.booleans(), INTS),
    st.builds(SegmentFree, INTS, INTS, INTS),
    st.builds(OutOfMemory, INTS, INTS, SITES, INTS),
    st.builds(Sample, INTS, INTS, MAYBE, MAYBE, MAYBE, MAYBE, MAYBE, MAYBE),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | NAMES | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
DEVICES = st.builds(Device, NAMES, MAYBE, st.none() | st.tuples(INTS, INTS), st.tuples(INTS, INTS, INTS))
TRACES = st.builds(
    Trace,
    st.sampled_from(["predicted", "measured", "imported"]),
    st.lists(EVENTS, max_size=12),
    st.none() | DEVICES,
    st.lists(st.builds(Mark, NAMES, INTS, INTS, INTS), max_size=3),
    st.dictionaries(NAMES, JSON, max_size=3),
    st.lists(st.builds(Assumption, NAMES, NAMES, st.integers(-(2**62), 0), INTS), max_size=3),
    st.lists(
        st.builds(Process, INTS, NAMES, MAYBE, INTS, MAYBE, MAYBE, st.none() | st.integers(-64, 255)),
        max_size=3,
        unique_by=lambda process: (process.pid, process.started_us),
    ),
    st.lists(st.builds(Span, NAMES, INTS, INTS, INTS, INTS, INTS, INTS), max_size=3),
    INTS,
    INTS,
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(trace=TRACES)
def test_a_round_trip_gives_an_equal_trace(trace: Trace) -> None:
    """Whatever a trace holds comes back equal: sites shared, figures that are None stay None."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.memlens"
        native.save(trace, path)
        assert native.load(path) == trace


@pytest.fixture
def record(tmp_path: Path) -> Path:
    """A whole record of 20 samples, a frame each."""
    path = tmp_path / "run.memlens"
    with native.Writer(path, Trace("measured", metadata={"command": "x"})) as writer:
        for number in range(20):
            writer.add(Sample(number, 7, number * 4096))
    return path


def test_every_cut_is_read_up_to_the_last_whole_frame(record: Path) -> None:
    """A record cut anywhere after its head gives the samples before the cut and says that it ends early."""
    data = record.read_bytes()
    counts = set()
    for size in range(70, len(data)):
        record.write_bytes(data[:size])
        trace = native.load(record)
        assert trace.events == [Sample(n, 7, n * 4096) for n in range(len(trace.events))]
        assert trace.assumptions[0].what == "the record ends early"
        counts.add(len(trace.events))
    assert counts == set(range(1, 21))  # 70 bytes hold the first


def test_a_growing_record_can_be_read(tmp_path: Path) -> None:
    """What was added is in the kernel's hands when `add` returns: a reader sees it at once."""
    path = tmp_path / "run.memlens"
    writer = native.Writer(path, Trace("measured"))
    writer.add(Sample(1, 7, 4096), Mark("begun", 0))
    trace = native.load(path)
    assert (trace.events, trace.marks) == ([Sample(1, 7, 4096)], [Mark("begun", 0)])
    writer.close()
    assert native.load(path).assumptions == []


def test_a_process_added_again_is_the_same_process(tmp_path: Path) -> None:
    """The end of a process comes later than its beginning: the later record counts, there is one process."""
    path = tmp_path / "run.memlens"
    with native.Writer(path, Trace("measured")) as writer:
        writer.add(Process(7, "worker", 1, 100))
        writer.add(Process(7, "worker", 1, 100, ended_us=200))
    assert native.load(path).processes == [Process(7, "worker", 1, 100, ended_us=200)]


def test_a_killed_writer_leaves_a_readable_record(tmp_path: Path) -> None:
    """A process that is killed with -9 while it writes loses nothing that it had added."""
    path = tmp_path / "run.memlens"
    code = (
        "import sys\nfrom memlens.model import Sample, Trace\nfrom memlens.records.native import Writer\n"
        f"writer = Writer({str(path)!r}, Trace('measured'))\nn = 0\n"
        "while True:\n    writer.add(Sample(n, 1, n)); n += 1\n"
        "    if n == 100: print('ready', flush=True)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    with process.stdout:
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.wait()
    trace = native.load(path)
    assert len(trace.events) >= 100
    assert trace.events[99] == Sample(99, 1, 99)


def test_a_full_disk_leaves_a_readable_record(tmp_path: Path) -> None:
    """When the file cannot grow, one RecordError says so and what was recorded before is whole."""
    path = tmp_path / "run.memlens"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    written: list[Sample] = []

    def fill() -> None:
        while True:
            writer.add(Sample(len(written), 7, 4096))
            written.append(Sample(len(written), 7, 4096))

    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        writer = native.Writer(path, Trace("measured"))
        with pytest.raises(RecordError, match=r"could not grow beyond \d+ bytes: File too large"):
            fill()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    writer.close()  # closed already: nothing more happens
    assert len(written) > 10
    assert native.load(path).events == written


def frame(payload: bytes) -> bytes:
    return struct.pack("<II", len(payload), zlib.crc32(payload)) + payload


HEADER = struct.pack("<8sI", native.MAGIC, 1)
HEAD = frame(b"\x91\x93\xa4head\xa8measured\xc0")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "is empty"),
        (b"PK\x03\x04 a zip file", "is of no format"),
        (struct.pack("<8sI", native.MAGIC, 2), "record version 2; this memlens reads up to 1"),
        (native.MAGIC, "writer was stopped before the first record"),
        (HEADER, "it has no head"),
        (HEADER + HEAD + HEAD, "it has two heads"),
        (HEADER + HEAD[:-1] + b"\xff" + HEAD, "fails its checksum"),
        (HEADER + HEAD + frame(b"\x91\x92\xa1z\x01"), "Invalid value 'z'"),
        (HEADER + HEAD + frame(b"\x91\x93\xa1f\xa1x\x00"), "Expected `int`, got `str`"),
        (HEADER + HEAD + frame(b"\x91\x95\xa1a\x01\x02\xa7unknown\x09"), "site 9 is used, 1 are known"),
        (HEADER + HEAD + frame(b"\xdd\xff\xff\xff\xff"), "is damaged"),
        (HEADER + HEAD + frame(b"\x91\x92\xa8metadata\x81\xa1x" + b"\x91" * 100_000), "is damaged"),
        (HEADER + b"\xff\xff\xff\xff\x00\x00\x00\x00abc", "it has no head"),
    ],
)
def test_a_bad_file_is_one_error(tmp_path: Path, data: bytes, says: str) -> None:
    """Foreign, newer, truncated, damaged or hostile: a RecordError that says which, and nothing else."""
    path = tmp_path / "bad.memlens"
    path.write_bytes(data)
    with pytest.raises(RecordError, match=says):
        load_any(path)


@settings(max_examples=100, deadline=None)
@given(place=st.integers(12, 400), value=st.integers(0, 255))
def test_one_wrong_byte_never_gives_a_wrong_trace(place: int, value: int) -> None:
    """A flipped byte is an error or cuts the record short; what is read is what was written."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.memlens"
        native.save(Trace("measured", [Sample(n, 7, n) for n in range(20)]), path)
        data = bytearray(path.read_bytes())
        data[place % len(data)] = value
        path.write_bytes(data)
        try:
            read = load_any(path)
        except RecordError:
            return
        assert read.events == [Sample(n, 7, n) for n in range(len(read.events))]


def test_metadata_that_no_record_can_hold_is_refused(tmp_path: Path) -> None:
    """An object in the metadata is an error with the reason, not a silent loss."""
    with pytest.raises(RecordError, match="cannot hold this"):
        native.save(Trace("measured", metadata={"x": object()}), tmp_path / "x.memlens")


def test_a_folder_that_is_not_there_is_one_error(tmp_path: Path) -> None:
    """Neither reading nor writing where nothing is gives a traceback."""
    with pytest.raises(RecordError, match="cannot read"):
        load_any(tmp_path / "no" / "x.memlens")
    with pytest.raises(RecordError, match="cannot write"):
        native.save(Trace("measured"), tmp_path / "no" / "x.memlens")


def test_allocations_of_one_line_share_their_site(tmp_path: Path) -> None:
    """A thousand allocations of one line write its stack once: 30 bytes each, not 1,000."""
    site = Site("train.py", 7, "f", frames=tuple(Frame("train.py", n, "f") for n in range(50)))
    path = tmp_path / "x.memlens"
    native.save(Trace("measured", [Alloc(n, 512, site=site) for n in range(1000)]), path)
    assert os.path.getsize(path) < 32_000


def test_a_name_that_is_no_utf8_is_recorded(tmp_path: Path) -> None:
    """Python keeps such bytes as lone surrogates, which no file holds: they are spelt out."""
    name = b"caf\xe9.py".decode("utf-8", "surrogateescape")
    trace = Trace("measured", [Alloc(1, 512, site=Site(file=name))], metadata={"command": name})
    native.save(trace, tmp_path / "x.memlens")
    again = load_any(tmp_path / "x.memlens")
    assert again.metadata["command"] == "caf\\udce9.py"
    assert isinstance(again.events[0], Alloc)
    assert again.events[0].site.file == "caf\\udce9.py"
