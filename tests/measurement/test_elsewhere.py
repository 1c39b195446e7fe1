"""macOS and Windows: everything is measured through psutil, and what is known less well says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.elsewhere import run_elsewhere

from memlens.explanation.curves import curves
from memlens.records import load
from memlens.units import MIB

HOLD = """
import json, time
from memlens import LineProfiler, memory_usage, profile
def hold(n, seconds=0.3):
    block = bytearray(n << 20)
    time.sleep(seconds)
    return len(block)
"""


def printed(code: str, folder: Path) -> object:
    done = run_elsewhere(HOLD + code, folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_memory_usage_samples_through_psutil(tmp_path: Path) -> None:
    """60 MiB that live for 0.3 s are in the samples; a child has its figure; the function ran once."""
    code = (
        "usage, size = memory_usage((hold, (60,)), interval=0.02, retval=True)\n"
        "held = 'import time; x = bytearray(40 << 20); time.sleep(5)'\n"
        "child = subprocess.Popen([sys.executable, '-c', held])\n"
        "time.sleep(1)\n"
        "(each,) = memory_usage(-1, multiprocess=True)\nchild.kill()\n"
        "print(json.dumps([max(usage) - usage[0], size, len(each), each[1]]))\n"
    )
    peak, size, processes, child = printed(code, tmp_path)  # type: ignore[misc]
    assert peak == pytest.approx(60, abs=3)
    assert (size, processes) == (60 * MIB, 2)
    assert 40 < child < 80


def test_lines_have_peaks_that_are_at_least_so_much(tmp_path: Path) -> None:
    """The table is there, its increments telescope, its peaks are samples and are titled so."""
    code = (
        "import io\nout = io.StringIO()\nprofile(stream=out)(hold)(50)\n"
        "p = LineProfiler(hold, include_children=True); p.runcall(hold, 30)\n"
        "t = p.tables()[0]\ngrowth = round(t.body[0].increment_bytes / 2**20)\n"
        "print(json.dumps(['Peak (>=)' in out.getvalue(), t.peaks_are_exact, growth]))\n"
    )
    assert printed(code, tmp_path) == [True, False, 30]


def test_a_run_is_recorded_with_its_child(tmp_path: Path) -> None:
    """The program's exit code, both processes with their peaks, and the summary."""
    (tmp_path / "p.py").write_text(
        "import subprocess, sys, time\nx = bytearray(60 << 20)\n@profile\ndef f(): time.sleep(0.6)\nf()\n"
        "held = 'import time; x = bytearray(40 << 20); time.sleep(1)'\n"
        "subprocess.run([sys.executable, '-c', held])\nsys.exit(4)\n"
    )
    code = "from memlens.cli import main\nmain(['run', '-T', '0.05', '-o', 'x.memlens', 'p.py'])\n"
    done = run_elsewhere(code, tmp_path)
    assert done.returncode == 4, done.stderr
    assert "exit code 4" in done.stderr
    trace = load(tmp_path / "x.memlens")
    program, child = curves(trace)
    assert program.peak_bytes > 60 * MIB
    assert child.peak_bytes > 40 * MIB
    assert [span.name for span in trace.spans] == ["__main__.f"]


def test_lines_of_a_run(tmp_path: Path) -> None:
    """`memlens run --lines` in it: the program itself is a usual one, only its recorder is not."""
    (tmp_path / "p.py").write_text("@profile\ndef f():\n    return bytearray(20 << 20)\nf()\n")
    code = "from memlens.cli import main\nmain(['run', '-q', '--lines', '-o', 'x.memlens', 'p.py'])\n"
    done = run_elsewhere(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "Line #" in done.stdout


def test_a_process_is_attached_to(tmp_path: Path) -> None:
    """`memlens attach` for half a second; a process that is gone is one line."""
    code = (
        "from memlens.cli import main\nchild = subprocess.Popen([sys.executable, '-c', "
        "'import time; x = bytearray(40 << 20); time.sleep(20)'])\nimport time; time.sleep(0.5)\n"
        "try: main(['attach', str(child.pid), '-t', '0.5', '-o', 'x.memlens'])\n"
        "finally: child.kill(); child.wait()\n"
    )
    done = run_elsewhere(code, tmp_path)
    assert done.returncode == 0, done.stderr
    (curve,) = curves(load(tmp_path / "x.memlens"))
    assert curve.peak_bytes > 40 * MIB
    gone = run_elsewhere("from memlens.cli import main\nmain(['attach', '999999999'])\n", tmp_path)
    assert (gone.returncode, "there is no process 999999999" in gone.stderr) == (2, True)


def test_what_a_windows_console_sends_is_not_sent_on() -> None:
    """Ctrl-Break reaches every process of a console by itself, and Windows cannot send it to one."""
    import signal

    from memlens.measurement.run import fast_start

    try:
        signal.SIGBREAK = 21  # type: ignore[attr-defined]
        assert 21 in fast_start._numbers("SIGINT", "SIGQUIT", "SIGBREAK")
    finally:
        del signal.SIGBREAK  # type: ignore[attr-defined]
    assert signal.SIGINT in fast_start._FROM_TERMINAL
