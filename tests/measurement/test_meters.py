"""Meters: true peaks where the kernel keeps them, honest ones where it does not."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from memlens.measurement.host import meters, own_process
from memlens.units import MIB


def fresh(size: int) -> mmap.mmap:
    """`size` bytes from the system, touched: malloc would serve them from memory that it kept."""
    block = mmap.mmap(-1, size)
    block[::4096] = b"x" * -(-size // 4096)
    return block


linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's high-water mark is Linux's")


def test_the_fast_reader_and_psutil_agree() -> None:
    """Two ways to the same figure, within what the reading itself allocates.

    What other threads of the test run give back between two readings is in one of them: once must do.
    """
    reader, read = own_process.psutil_reader(), own_process.own_rss_bytes
    apart = [(abs(read() - psutil.Process().memory_info().rss), abs(reader() - read())) for _ in range(5)]
    assert min(max(pair) for pair in apart) <= 2 * MIB


def test_without_proc_psutil_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS and Windows: no statm, so the reader is psutil's."""
    monkeypatch.setattr(own_process, "STATM", "/nonexistent/statm")
    assert own_process.own_reader()() == pytest.approx(psutil.Process().memory_info().rss, abs=2 * MIB)


@linux
def test_pss_and_uss_are_parts_of_rss() -> None:
    """USS <= PSS <= RSS, and none is 0."""
    uss, pss = own_process.uss_bytes() or 0, own_process.pss_bytes() or 0
    assert 0 < uss <= pss <= own_process.own_rss_bytes() + MIB


def test_a_process_that_is_gone_reads_as_none() -> None:
    """Never as 0."""
    assert own_process.rss_bytes(999_999_999) is None
    assert own_process.pss_bytes(999_999_999) is None


@linux
def test_a_peak_between_two_looks_is_exact() -> None:
    """40 MiB that came and went: told once, and not again."""
    meter = meters.HighWaterMeter()
    watcher = meter.start()
    before, _ = meter.look(watcher)
    fresh(40 * MIB)
    now, high = meter.look(watcher)
    assert high - before == pytest.approx(40 * MIB, abs=MIB)
    assert now - before == pytest.approx(0, abs=MIB)
    assert meter.look(watcher)[1] - before < MIB
    meter.stop(watcher)


@linux
def test_a_peak_is_told_to_every_watcher() -> None:
    """Whoever resets the kernel's mark tells the others: a profile inside a measurement hides nothing."""
    meter = meters.HighWaterMeter()
    outer, inner = meter.start(), meter.start()
    before, _ = meter.look(outer)
    fresh(40 * MIB)
    assert meter.look(inner)[1] - before == pytest.approx(40 * MIB, abs=MIB)
    assert meter.look(outer)[1] - before == pytest.approx(40 * MIB, abs=MIB)
    assert meter.highest_bytes >= before + 39 * MIB


def test_where_the_mark_cannot_be_reset_a_thread_samples(tmp_path: Path) -> None:
    """Not permitted, as in some containers: the peak is at least the highest sample, and says so."""
    with pytest.raises(OSError, match="clear"):
        meters.HighWaterMeter(str(tmp_path / "no" / "clear_refs"))
    meter = meters.SampledMeter("rss", own_process.own_rss_bytes)
    watcher = meter.start()
    before, _ = meter.look(watcher)
    block = fresh(40 * MIB)
    time.sleep(0.1)
    del block
    now, high = meter.look(watcher)
    assert (meter.exact, high - before > 39 * MIB, now - before < 2 * MIB) == (False, True, True)
    meter.stop(watcher)


@linux
def test_a_forked_child_reads_itself() -> None:
    """Not its parent, whose statm was open: the child's block is in its figure, and not in the parent's."""
    code = (
        "import os, sys\n"
        "from memlens.measurement.host import own_process, meters\n"
        "m = meters.meter(); w = m.start(); before = m.look(w)[0]\n"
        "pid = os.fork()\n"
        "if not pid:\n"
        "    block = bytearray(40 << 20)\n"
        "    sizes = m.look(w)[0], own_process.own_rss_bytes()\n"
        "    os._exit(0 if min(sizes) - before > 30 << 20 else 1)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0\n"
        "assert m.look(w)[1] - before < 10 << 20\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)


@linux
def test_a_program_that_closes_every_descriptor_is_still_read() -> None:
    """As daemons do; and a file of the program's that takes the number is neither read nor written."""
    code = (
        "import os\n"
        "from memlens.measurement.host import meters\n"
        "m = meters.meter(); w = m.start(); before = m.look(w)[0]\n"
        "os.closerange(3, 256)\n"
        "pipes = [os.pipe() for _ in range(20)]\n"
        "block = bytearray(40 << 20); del block\n"
        "now, high = m.look(w)\n"
        "assert 39 << 20 < high - before < 42 << 20, (now, high, before)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@linux
def test_a_parent_that_was_larger_does_not_hide_peaks() -> None:
    """getrusage keeps the size of the process before exec for ever; the mark is read elsewhere then."""
    ballast = bytearray(300 * MIB)
    code = (
        "from memlens.measurement.host import meters\n"
        "m = meters.HighWaterMeter(); w = m.start(); before = m.look(w)[0]\n"
        "block = bytearray(40 << 20); del block\n"
        "high = m.look(w)[1]\n"
        "assert 39 << 20 < high - before < 42 << 20, (high, before)\n"
    )
    pid = os.posix_spawn(sys.executable, [sys.executable, "-c", code], dict(os.environ))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert len(ballast) == 300 * MIB
