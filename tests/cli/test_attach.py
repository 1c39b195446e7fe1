"""`memlens attach`: a running process is recorded from outside and left alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from memlens.cli.commands.attach import find
from memlens.errors import UsageError
from memlens.explanation.curves import curves
from memlens.model import Sample
from memlens.records import load
from memlens.units import MIB

CODE = (
    "import subprocess, sys, time\nx = bytearray(40 << 20)\n"
    "wait = [sys.executable, '-c', 'import sys; sys.stdin.read()']\n"
    "child = subprocess.Popen(wait, stdin=subprocess.PIPE)\n"
    "print('ready', flush=True)\nsys.stdin.read()\n"
)


def until_recorded(path: Path) -> None:
    """Wait until a record has its first sample, however long the recorder takes to start."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if path.exists() and any(isinstance(event, Sample) for event in load(path).events):
            return
        time.sleep(0.05)
    raise AssertionError(f"{path} has no sample after 30 s")


@pytest.fixture
def victim(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program of 40 MiB with a child, under a name that nothing else has."""
    script = tmp_path / f"victim_{os.getpid()}.py"
    script.write_text(CODE)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, str(script)], **pipes) as process:  # type: ignore[call-overload]
        process.stdout.readline()
        yield process
        process.stdin.close()


def attach(folder: Path, *words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "memlens", "attach", *words],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_a_process_is_recorded_for_a_while(tmp_path: Path, victim: subprocess.Popen[bytes]) -> None:
    """-t 0.5 records half a second of it and its child; it lives on."""
    recorder = attach(tmp_path, str(victim.pid), "-t", "0.5", "-T", "0.05", "-o", "x.memlens")
    _, errors = recorder.communicate(timeout=30)
    assert recorder.returncode == 0, errors
    program, child = curves(load(tmp_path / "x.memlens"))
    assert (program.pid, child.parent) == (victim.pid, victim.pid)
    assert 40 * MIB < program.peak_bytes < 60 * MIB
    assert "still runs" in errors
    assert victim.poll() is None


def test_ctrl_c_ends_the_recording_not_the_process(tmp_path: Path, victim: subprocess.Popen[bytes]) -> None:
    """Ctrl-C closes the record and touches nobody."""
    recorder = attach(tmp_path, str(victim.pid), "-o", "x.memlens")
    deadline = time.monotonic() + 20
    while not (tmp_path / "x.memlens").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.3)
    recorder.send_signal(signal.SIGINT)
    recorder.communicate(timeout=20)
    assert recorder.returncode == 0
    assert load(tmp_path / "x.memlens").assumptions == []
    assert victim.poll() is None


def test_the_end_of_the_process_is_the_end(tmp_path: Path, victim: subprocess.Popen[bytes]) -> None:
    """When the process goes, the recording is closed, with its end; its name was enough to find it."""
    recorder = attach(tmp_path, f"victim_{os.getpid()}", "-q", "-o", "x.memlens")
    until_recorded(tmp_path / "x.memlens")
    assert victim.stdin is not None
    victim.stdin.close()
    recorder.communicate(timeout=20)
    assert recorder.returncode == 0
    assert load(tmp_path / "x.memlens").processes[0].ended_us is not None


def test_the_newest_of_a_name_is_meant(victim: subprocess.Popen[bytes]) -> None:
    """A name finds the process by its command line; a number is a pid."""
    assert find(f"victim_{os.getpid()}") == victim.pid
    assert find("4711") == 4711
    with pytest.raises(UsageError, match="no running process is called"):
        find("no-process-has-such-a-name")


@pytest.mark.parametrize("words", [["4194303"], ["--backend", "tracemalloc", "1"], ["-t", "-1", "1"]])
def test_what_cannot_be_attached_is_one_line(tmp_path: Path, words: list[str]) -> None:
    """A pid that is gone, a figure not seen from outside, a negative time: exit code 2, no record."""
    recorder = attach(tmp_path, *words)
    _, errors = recorder.communicate(timeout=20)
    assert recorder.returncode == 2
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="needs a user to drop to")
def test_a_process_of_another_user_is_recorded_as_far_as_allowed(
    tmp_path: Path, victim: subprocess.Popen[bytes]
) -> None:
    """RSS of a process that is not ours is there; PSS is denied, said in one line, and never 0."""
    tmp_path.chmod(0o777)
    code = (
        f"import os, sys\nsys.path[:0] = {sys.path!r}\nfrom memlens.cli import main\n"
        "def attach(file):\n"
        f"    try: main(['attach', '{victim.pid}', '-t', '0.5', '-o', file])\n"
        "    except SystemExit as end: return end.code\n"
        # once with all rights, which loads every module: the other user may not read where they lie
        f"os.chdir({str(tmp_path)!r})\nattach('first.memlens')\nos.setuid(65534)\n"
        "sys.exit(attach('x.memlens'))\n"
    )
    for folder in tmp_path.parents[:2]:
        folder.chmod(folder.stat().st_mode | 0o011)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "PSS and USS are not known for every process" in done.stderr
    trace = load(tmp_path / "x.memlens")
    samples = [event for event in trace.events if isinstance(event, Sample) and event.pid == victim.pid]
    assert samples
    assert all(sample.rss_bytes and sample.pss_bytes is None for sample in samples)


def test_run_attaches_too(tmp_path: Path, victim: subprocess.Popen[bytes]) -> None:
    """`mprof run --attach PID` in its own words; a program with arguments is not a process."""
    command = [sys.executable, "-m", "memlens", "run", "-q", "-t", "0.3", "-o", "x.memlens", "--attach"]
    assert subprocess.run([*command, str(victim.pid)], cwd=tmp_path, check=False).returncode == 0
    assert load(tmp_path / "x.memlens").processes[0].pid == victim.pid
    wrong = subprocess.run([*command, "train.py", "-x"], cwd=tmp_path, capture_output=True, check=False)
    assert (wrong.returncode, b"takes one PID or name" in wrong.stderr) == (2, True)
