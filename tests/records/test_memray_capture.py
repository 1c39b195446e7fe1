"""memray's captures as traces: the peak is memray's own, and its owners are lines of the program."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

memray = pytest.importorskip("memray")

from memlens.errors import RecordError  # noqa: E402  (after the skip)
from memlens.model import Alloc, Free  # noqa: E402
from memlens.records import load, memray_capture  # noqa: E402
from memlens.units import MIB  # noqa: E402

PROGRAM = """\
import mmap
def block(n):
    return bytearray(n << 20)
def work():
    kept = block(30)
    for _ in range(3):
        gone = block(20)
    return kept
kept = work()
mapped = mmap.mmap(-1, 8 << 20)
mapped.close()
"""


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of the program above, recorded by memray itself."""
    folder = tmp_path_factory.mktemp("memray")
    (folder / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "memray", "run", "-q", "-o", "capture", "program.py"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder / "capture"


def test_the_peak_is_memrays_own(capture: Path) -> None:
    """Alive at the highest moment: 30 + 20 + 20 MiB (the new block is made before the old one goes)."""
    trace = load(capture)
    trace.check()
    peak = trace.breakdown()
    assert peak.allocated_bytes == trace.metadata["peak_allocated_bytes"]
    assert 70 * MIB < peak.allocated_bytes < 72 * MIB
    where, size = next(iter(peak.by_line().items()))
    assert where.endswith("program.py:3")
    assert size > 69 * MIB


def test_every_block_is_there_with_its_stack(capture: Path) -> None:
    """Four blocks of 20 and 30 MiB are allocated, each with the stack that asked for it."""
    blocks = [e for e in load(capture).events if isinstance(e, Alloc) and e.bytes >= 20 * MIB]
    assert len(blocks) == 4
    assert [frame.function for frame in blocks[0].site.frames][:2] == ["block", "work"]


def test_a_mapping_that_is_unmapped_is_freed(capture: Path) -> None:
    """The 8 MiB of mmap come and go."""
    events = load(capture).events
    (mapping,) = [e for e in events if isinstance(e, Alloc) and e.bytes == 8 * MIB]
    assert Free(mapping.id) in events


def test_unmapping_a_part_leaves_the_rest() -> None:
    """munmap of the middle of a mapping leaves two smaller ones, and sums close."""

    class Record:
        def __init__(self, address: int, size: int, allocator: int) -> None:
            self.address, self.size, self.allocator, self.stack_id = address, size, allocator, 1

        def stack_trace(self) -> list[tuple[str, str, int]]:
            return [("f", "a.py", 1)]

    mapped, unmapped = 10, 11
    records = [Record(1000, 300, mapped), Record(1100, 100, unmapped), Record(900, 250, unmapped)]
    events = list(memray_capture._one_by_one(iter(records), {unmapped}, mapped, memray_capture.Sites()))
    sizes = [event.bytes if isinstance(event, Alloc) else -event.id for event in events]
    assert sizes == [300, -1, 100, 100, -2]


def test_of_a_long_run_the_peak_is_kept(capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the limit the trace holds what was alive at the peak, and says that it does."""
    monkeypatch.setattr(memray_capture, "MOST_EVENTS", 3)
    trace = load(capture)
    assert trace.breakdown().allocated_bytes == trace.metadata["peak_allocated_bytes"]
    assert trace.assumptions[0].what == "only what was held at the peak is in this trace"


def test_a_truncated_capture_is_one_error(capture: Path, tmp_path: Path) -> None:
    """A capture cut in its header is a RecordError with memray's own reason."""
    (tmp_path / "cut").write_bytes(capture.read_bytes()[:20])
    with pytest.raises(RecordError, match="memray cannot read"):
        load(tmp_path / "cut")
