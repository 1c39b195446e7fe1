"""Reading other processes: who belongs to the program, what each holds, and what the system will not say."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from memlens.measurement.host.proc_reader import LinuxReader
from memlens.measurement.host.process_names import short_name
from memlens.measurement.host.psutil_reader import PsutilReader
from memlens.measurement.host.readers import reader_for
from memlens.measurement.host.reading import Denied, Reader, Reading, Shares
from memlens.units import MIB

CHILD = "import sys; x = bytearray(30 << 20); print('ready', flush=True); sys.stdin.read()"


@pytest.fixture(params=[LinuxReader, PsutilReader])
def reader(request: pytest.FixtureRequest) -> Iterator[Reader]:
    """Each reader on a program of 30 MiB."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", CHILD], **pipes) as process:  # type: ignore[call-overload]
        process.stdout.readline()
        yield request.param(process.pid)
        process.stdin.close()


def test_both_readers_see_the_same_program(reader: Reader) -> None:
    """RSS, PSS and USS of a program that holds 30 MiB: private below proportional below resident."""
    ((pid, parent),) = reader.family().items()
    reading, shares = reader.read(pid), reader.shares(pid)
    assert parent is None
    assert reading is not None
    assert shares is not None
    assert 30 * MIB < shares.uss_bytes <= shares.pss_bytes <= reading.rss_bytes < 60 * MIB
    assert reader.name(pid).endswith("-c")


def test_the_reader_of_this_system_is_the_fast_one() -> None:
    """Where /proc is there it is read; psutil is for other systems."""
    assert isinstance(reader_for(os.getpid()), LinuxReader)


@pytest.mark.parametrize("kind", [LinuxReader, PsutilReader])
def test_a_process_that_is_gone_reads_as_none(kind: Any) -> None:
    """None, not 0 and not an error: processes end between any two calls."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    reader = kind(process.pid)
    reader.family()
    reader.read(process.pid)
    process.wait()
    assert reader.read(process.pid) is None
    assert reader.shares(process.pid) is None
    assert process.pid not in reader.family()
    assert reader.name(process.pid) == f"process {process.pid}"


@pytest.mark.parametrize("kind", [LinuxReader, PsutilReader])
def test_a_zombie_holds_nothing(kind: Any) -> None:
    """A process that ended and was not waited for keeps its number, and no memory."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    time.sleep(0.3)
    assert kind(process.pid).read(process.pid) is None
    process.wait()


def test_a_child_that_outlives_its_parent_stays_ours(tmp_path: Path) -> None:
    """Once seen as a descendant, a process is followed although init has become its parent."""
    code = (
        "import os, sys\n"
        "if os.fork() == 0:\n"
        "    print('child', flush=True); sys.stdin.readline()\n"
        "    if os.fork() == 0: print('grandchild', flush=True)\n"
        "    sys.stdin.read(); os._exit(0)\n"
        "while os.getppid() and not os.path.exists(sys.argv[1]): pass\n"
    )
    leave = tmp_path / "leave"
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code, str(leave)], **pipes) as process:
        assert process.stdout.readline() == "child\n"
        reader = LinuxReader(process.pid)
        seen = len(reader.family())
        leave.touch()
        process.wait()
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "grandchild\n"
        after = len(reader.family())
        process.stdin.close()
    assert (seen, after) == (2, 2)  # the parent is gone, a grandchild has come


def test_more_processes_than_descriptors_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond the descriptors that are kept open, a status file is opened each time."""
    monkeypatch.setattr("memlens.measurement.host.proc_reader.KEPT_DESCRIPTORS", 0)
    reader = LinuxReader(os.getpid())
    reading = reader.read(os.getpid())
    assert reading is not None
    assert reading.rss_bytes > MIB


@pytest.mark.skipif(os.getuid() != 0, reason="needs a user to drop to")
def test_another_users_pss_is_denied_with_a_reason() -> None:
    """RSS of another user's process can be read, PSS cannot: Denied says why."""
    code = (
        "import os\nfrom memlens.measurement.host.proc_reader import LinuxReader\n"
        "from memlens.measurement.host.reading import *\nos.setuid(65534)\n"
        f"reader = LinuxReader({os.getpid()})\nassert reader.read({os.getpid()}).rss_bytes > 0\n"
        f"try: reader.shares({os.getpid()})\nexcept Denied as denied: print(denied)\n"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd="/")
    assert out.stdout == f"process {os.getpid()} is another user's\n", out.stderr


class Macintosh:
    """psutil's process as on macOS: no PSS, no peak, another user's memory refused."""

    def __init__(self, pid: int) -> None:
        if pid == 404:
            raise psutil.NoSuchProcess(pid)
        self.pid = pid

    def memory_info(self) -> Any:
        if self.pid == 403:
            raise psutil.AccessDenied(self.pid)
        return SimpleNamespace(rss=100, vms=1000)

    def memory_full_info(self) -> Any:
        self.memory_info()
        return SimpleNamespace(rss=100, uss=60)

    def status(self) -> str:
        return psutil.STATUS_RUNNING

    def is_running(self) -> bool:
        return True

    def ppid(self) -> int:
        return 1

    def children(self, recursive: bool) -> list[Macintosh]:
        return [Macintosh(403), Macintosh(8)]

    def cmdline(self) -> list[str]:
        raise psutil.AccessDenied(self.pid)

    def name(self) -> str:
        return f"app{self.pid}"


def test_macos_gives_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without PSS and a peak these are None; a process that is not ours is denied, not fatal."""
    monkeypatch.setattr(psutil, "Process", Macintosh)
    reader = PsutilReader(7)
    assert reader.family() == {7: None, 403: 1, 8: 1}
    assert reader.read(7) == Reading(100, None, None)
    assert reader.shares(7) == Shares(None, 60)
    assert reader.read(403) is None
    with pytest.raises(Denied, match="process 403 is another user's"):
        reader.shares(403)
    assert reader.name(8) == "app8"
    assert PsutilReader(404).family() == {}


def test_windows_keeps_the_peak_working_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows' peak working set is the high-water mark."""

    class Window(Macintosh):
        def memory_info(self) -> Any:
            return SimpleNamespace(rss=100, peak_wset=150)

    monkeypatch.setattr(psutil, "Process", Window)
    assert PsutilReader(7).read(7) == Reading(100, None, 150)


def test_a_root_that_is_gone_leaves_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the program has ended, the children that were seen are still followed."""

    class Mortal(Macintosh):
        dead = False

        def children(self, recursive: bool) -> list[Macintosh]:
            if Mortal.dead:
                raise psutil.NoSuchProcess(self.pid)
            return [Mortal(8)]

        def is_running(self) -> bool:
            return not (Mortal.dead and self.pid == 7)

    monkeypatch.setattr(psutil, "Process", Mortal)
    reader = PsutilReader(7)
    assert reader.family() == {7: None, 8: 1}
    Mortal.dead = True
    assert reader.family() == {8: 1}


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (["/usr/bin/python3", "-u", "/x/train.py", "--lr"], "python3 train.py"),
        (["python", "-m", "pkg.tool"], "python -m pkg.tool"),
        (["/bin/sh", "-c", "make"], "sh -c"),
        (["/bin/ls", "/tmp"], "ls"),
        (["nginx: worker process"], "nginx: worker process"),
        ([""], ""),
    ],
)
def test_names_are_two_words(words: list[str], name: str) -> None:
    """A program, and its script or module where an interpreter runs one."""
    assert short_name(words) == name


def test_a_fake_proc_with_a_bad_name(tmp_path: Path) -> None:
    """A process may call itself anything; parentheses and spaces do not hide who its parent is."""
    for pid, name, parent in ((10, "init", 1), (11, "a) S 99 (b", 10)):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} ({name}) S {parent} {'0 ' * 17}77 0\n")
        (tmp_path / str(pid) / "cmdline").write_text("")
        (tmp_path / str(pid) / "comm").write_text(f"{name}\n")
    reader = LinuxReader(10, tmp_path)
    assert reader.family() == {10: None, 11: 10}
    assert reader.name(11) == "a) S 99 (b"


def test_a_descendant_whose_parent_was_never_seen_is_known_by_its_environment(tmp_path: Path) -> None:
    """A daemon's second fork belongs to init: the program's own entry in its environment tells. An older
    process with the same entry, and one with another value, are not ours."""
    processes = (
        (10, 1, 50, "A=1\0MARK=x/channel\0"),
        (8, 1, 49, "MARK=x/channel\0"),
        (12, 1, 60, "MARK=x/channel\0B=2\0"),
        (13, 12, 61, ""),
        (14, 1, 62, "MARK=x/channel2\0"),
    )
    for pid, parent, started, environment in processes:
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "stat").write_text(f"{pid} (p) S {parent} {'0 ' * 17}{started} 0\n")
        (tmp_path / str(pid) / "environ").write_text(environment)
    assert LinuxReader(10, tmp_path, "MARK=x/channel").family() == {10: None, 12: 1, 13: 12}
    assert LinuxReader(10, tmp_path).family() == {10: None}
