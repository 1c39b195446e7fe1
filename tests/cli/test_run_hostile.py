"""Programs that make a recorder's life hard: each ends as it would without us, and leaves a whole record."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from memlens.explanation.curves import curves
from memlens.model import Trace
from memlens.records import load
from memlens.units import MIB


class Hostile(NamedTuple):
    """A program, the exit code it has without us, and options of `memlens run`."""

    text: str
    code: int = 0
    options: tuple[str, ...] = ()


PROGRAMS: dict[str, Hostile] = {
    "200 children at once": Hostile(
        "import os, time\ntime.sleep(0.3)\n"
        "for _ in range(200):\n    if os.fork() == 0: time.sleep(1); os._exit(0)\n"
        "for _ in range(200): os.wait()\n"
    ),
    "200 children one after the other": Hostile(
        "import os\nfor _ in range(200):\n    if os.fork() == 0: os._exit(0)\n    os.wait()\n"
    ),
    "children of children of children": Hostile(
        "import os, time\nfor depth in range(12):\n    if os.fork(): os.wait(); os._exit(0)\n"
        "time.sleep(0.3)\n"
    ),
    "a forked child that comes to the end of the script": Hostile(
        "import os\npid = os.fork()\nif pid: os.waitpid(pid, 0)\n", 0, ("--python-level",)
    ),
    "a fork that outlives its parent": Hostile(
        "import os, time\nif os.fork() == 0:\n    os.setsid(); time.sleep(0.5); os._exit(0)\n"
    ),
    "zombies": Hostile(
        "import os, time\nfor _ in range(50):\n    if os.fork() == 0: os._exit(0)\ntime.sleep(0.3)\n"
    ),
    "64 threads": Hostile(
        "import threading, time\n"
        "ts = [threading.Thread(target=lambda: (bytearray(1 << 20), time.sleep(0.2))) for _ in range(64)]\n"
        "[t.start() for t in ts]; [t.join() for t in ts]\n"
    ),
    "a thread that is left running": Hostile(
        "import threading, time, sys\nthreading.Thread(target=time.sleep, args=(30,), daemon=True).start()\n"
        "sys.exit(5)\n",
        5,
    ),
    "exec of another program": Hostile(
        "import os, sys\nos.execv('/bin/sh', ['sh', '-c', 'exit 9'])\n", 9, ("--python-level",)
    ),
    "os._exit": Hostile("import os\nos._exit(11)\n", 11, ("--python-level",)),
    "abort": Hostile("import os\nos.abort()\n", 134),
    "a segmentation fault": Hostile("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n", 139),
    "SIGKILL of itself": Hostile("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n", 137),
    "SIGTERM of itself": Hostile("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n", 143),
    "a signal storm": Hostile(
        "import os, signal\nsignal.signal(signal.SIGUSR1, lambda *_: None)\n"
        "for _ in range(2000): os.kill(os.getpid(), signal.SIGUSR1)\n"
    ),
    "KeyboardInterrupt": Hostile("raise KeyboardInterrupt\n", 130),
    "recursion 900 deep": Hostile(
        "def f(n):\n    return 0 if n == 0 else 1 + f(n - 1)\nassert f(900) == 900\n", 0, ("--python-level",)
    ),
    "recursion without end": Hostile("def f(): f()\nf()\n", 1),
    "recursion 900 deep, line by line": Hostile(
        "@profile\ndef f(n):\n    return 0 if n == 0 else 1 + f(n - 1)\nassert f(900) == 900\n",
        0,
        ("--lines",),
    ),
    "recursion 900 deep, timed": Hostile(
        "@profile\ndef f(n):\n    return 0 if n == 0 else 1 + f(n - 1)\n"
        "import sys; sys.setrecursionlimit(10_000)\nassert f(900) == 900\n"
    ),
    "no standard streams": Hostile("import os\nos.close(0); os.close(1); os.close(2)\n"),
    "every descriptor closed": Hostile("import os\nos.closerange(0, 200)\n", 0, ("--python-level",)),
    "another directory, removed": Hostile(
        "import os, tempfile\nd = tempfile.mkdtemp(); os.chdir(d); os.rmdir(d)\n"
    ),
    "an environment wiped clean": Hostile(
        "import os\nos.environ.clear()\nwith profile.timestamp('x'): pass\n"
    ),
    "its own excepthook": Hostile(
        "import sys\ndef hook(kind, error, trace):\n"
        "    print('hooked', kind.__name__, trace.tb_frame.f_code.co_filename)\n"
        "sys.excepthook = hook\n1 / 0\n",
        1,
    ),
    "SystemExit with a text": Hostile("raise SystemExit('a reason')\n", 1),
    "a syntax error": Hostile("def f(:\n", 1),
    "nothing at all": Hostile(""),
    "no file may grow any more": Hostile(
        "import resource, sys\nresource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "@profile\ndef f(): pass\nf()\nsys.exit(3)\n",
        3,
    ),
    "no file may grow any more, line by line": Hostile(
        "import resource, sys\nresource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "@profile\ndef f(): pass\nf()\nsys.exit(3)\n",
        3,
        ("--lines", "--python-level"),
    ),
    "a little of everything, exactly": Hostile(
        "import os\nif os.fork() == 0: os._exit(0)\nos.wait()\nx = [bytes(100) for _ in range(10_000)]\n",
        0,
        ("--exact",),
    ),
}  # fmt: skip


def run(
    folder: Path, hostile: Hostile, timeout: float = 60
) -> tuple[subprocess.CompletedProcess[bytes], Trace]:
    """Run it under memlens, and read the record back."""
    (folder / "program.py").write_text(hostile.text)
    command = [
        sys.executable,
        "-m",
        "memlens",
        "run",
        "-q",
        "-o",
        "x.memlens",
        *hostile.options,
        "program.py",
    ]
    done = subprocess.run(command, cwd=folder, timeout=timeout, capture_output=True, check=False)
    return done, load(folder / "x.memlens")


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_ends_as_it_would_without_us(tmp_path: Path, name: str) -> None:
    """The exit code is the program's own, the record is whole and has its first sample, nothing hangs."""
    hostile = PROGRAMS[name]
    if "--exact" in hostile.options:
        pytest.importorskip("memray")
    done, trace = run(tmp_path, hostile)
    assert done.returncode == hostile.code, done.stderr.decode()
    assert trace.metadata["exit_code"] in (hostile.code, 128 - hostile.code)
    assert not any("ends early" in note.what for note in trace.assumptions)
    assert trace.processes[0].ended_us
    assert b"memlens" not in done.stderr


def test_children_of_a_fork_bomb_are_counted(tmp_path: Path) -> None:
    """All 200 children that live for 1 s are in the record, each as a process of its own."""
    _, trace = run(tmp_path, PROGRAMS["200 children at once"])
    assert len(curves(trace)) == 201


def test_a_daemons_second_fork_is_counted(tmp_path: Path) -> None:
    """Its parent ends at once, so init has it before anybody could look: its 40 MiB are in the record."""
    text = (
        "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        x = bytearray(40 << 20); time.sleep(1); os._exit(0)\n    os._exit(0)\nos.wait()\n"
        "time.sleep(0.8)\n"
    )
    _, trace = run(tmp_path, Hostile(text))
    assert max(curve.peak_bytes for curve in curves(trace)[1:]) > 40 * MIB


def test_a_traceback_without_us_and_with_us_is_the_same(tmp_path: Path) -> None:
    """What a hook of the program's own is given begins at the program's own frame."""
    done, _ = run(tmp_path, PROGRAMS["its own excepthook"])
    assert done.stdout.split() == [b"hooked", b"ZeroDivisionError", str(tmp_path / "program.py").encode()]


def test_a_flood_of_output_is_not_held_up(tmp_path: Path) -> None:
    """50 MB of output pass through a pipe as they are: we are not in between."""
    text = "import sys\nfor _ in range(500): sys.stdout.write('x' * 99_999 + '\\n')\n"
    done, _ = run(tmp_path, Hostile(text))
    assert len(done.stdout) == 50_000_000


def test_a_disk_that_fills_up_stops_the_record_not_the_program(tmp_path: Path) -> None:
    """With room for 1,200 bytes the record is cut at its last whole frame, one line says so, and the program
    ends as it would."""
    text = (  # runs until the record has stopped growing
        "import os, sys, time\nsize, end = -1, time.monotonic() + 30\nwhile time.monotonic() < end:\n"
        "    time.sleep(0.5)\n    now = os.path.getsize('x.memlens') if os.path.exists('x.memlens') else 0\n"
        "    if now == size and now > 900: break\n    size = now\nsys.exit(6)\n"
    )
    (tmp_path / "program.py").write_text(text)
    code = (
        "import resource, sys\nresource.setrlimit(resource.RLIMIT_FSIZE, (1200, 1200))\n"
        "from memlens.cli import main\n"
        "main(['run', '-T', '0.01', '-o', 'x.memlens', '--nopython', sys.executable, 'program.py'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, timeout=60, capture_output=True, text=True, check=False
    )
    assert done.returncode == 6, done.stderr
    assert "could not grow beyond" in done.stderr
    trace = load(tmp_path / "x.memlens")
    assert len(trace.events) > 5
    assert trace.assumptions[0].what == "the record ends early"


def test_descriptors_that_the_program_takes_over_are_not_written_to(tmp_path: Path) -> None:
    """A daemon closes everything and opens its own files: what we say never lands in them."""
    text = (
        "import os\n@profile\ndef f(): pass\nf()\nos.closerange(0, 100)\n"
        "fds = [os.open(f'own{n}', os.O_CREAT | os.O_RDWR) for n in range(20)]\nf()\nf()\n"
    )
    _, trace = run(tmp_path, Hostile(text, 0, ("--python-level",)))
    assert [path.stat().st_size for path in tmp_path.glob("own*")] == [0] * 20
    assert len(trace.spans) == 3


@pytest.mark.slow
def test_ten_million_lines(tmp_path: Path) -> None:
    """Ten million executed lines under --lines end, with every one counted."""
    text = (
        "@profile\ndef f():\n    n = 0\n    for _ in range(5_000_000):\n        n += 1\n    return n\nf()\n"
    )
    done, trace = run(tmp_path, Hostile(text, 0, ("--lines",)), timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    counts = [row["occurrences"] for row in trace.metadata["lines"][0]["rows"]]
    assert counts[3:5] == [5_000_001, 5_000_000] or counts[3:5] == [5_000_000, 5_000_000]


@pytest.mark.slow
def test_a_wide_and_deep_fork_bomb(tmp_path: Path) -> None:
    """2^7 processes forked from each other, each with memory of its own: none is lost, nothing hangs."""
    text = (
        "import os, time\nfor _ in range(7): os.fork()\nx = bytearray(1 << 20)\ntime.sleep(3)\n"
        "while True:\n    try: os.wait()\n    except ChildProcessError: break\n"
    )
    done, trace = run(tmp_path, Hostile(text), timeout=120)
    assert done.returncode == 0
    found = curves(trace)
    assert len(found) == 128
    assert sum(curve.peak_bytes > MIB for curve in found) == 128
