"""The start of a plain `memlens run` before anything is loaded: the same program, started the same way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memlens.cli.commands.run import command
from memlens.cli.recording_options import Options
from memlens.measurement.run import fast_start, programs
from memlens.records import load

pytestmark = pytest.mark.skipif(not fast_start.can_wait(), reason="needs pidfds")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with a script and a record."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import sys; print(sys.argv)\n")
    (tmp_path / "old.memlens").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    "typed",
    [
        "train.py",
        "-q train.py --lr 3",
        "-C -M -E --json -o new.memlens train.py -o x",
        "--force -o old.memlens train.py",
        "python train.py x",
        "-q python3 train.py",
        "/some/python3.12 train.py",
    ],
)
def test_what_is_plain_is_what_click_makes_of_it(typed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The early start and the command line agree on the program and on all that changes how it starts."""
    words = typed.split()
    plain = fast_start.plain_program(words)
    parsed = command.make_context("run", list(words)).params
    monkeypatch.setattr("shutil.which", lambda name: name)
    program = programs.parse(list(parsed.pop("words")))
    assert plain == [*program.interpreter, *program.target]
    asked = {name: value for name, value in parsed.items() if value not in (None, False)}
    assert asked.keys() <= {
        *("interval", "backend", "precision", "output"),
        *("quiet", "force", "as_json", "include_children", "multiprocess", "exit_code"),
    }
    assert asked["interval"] == fast_start.INTERVAL_SECONDS
    options = Options(**{name: parsed[name] for name in Options.__slots__})
    assert options.settings().timeout_s is None


@pytest.mark.parametrize(
    "typed",
    [
        "", "-q", "no.py", "-x train.py", "--lines train.py", "-T 1 train.py", "-m train",
        "python -u train.py",
        "-o old.memlens train.py", "-o nowhere/new.memlens train.py", "--force -o . train.py", "ls",
        "--output=x train.py", "-o curve.png train.py",
        "-qC train.py", "--live train.py", "--help", "-- train.py", "-o",
    ],
)  # fmt: skip
def test_what_is_not_plain_takes_the_usual_way(typed: str) -> None:
    """Options that change the start, that will be refused, or that only click can read."""
    assert fast_start.plain_program(typed.split()) is None


def run(*words: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "memlens", "run", *words],
        text=True, capture_output=True, timeout=60, check=False, **options,  # type: ignore[call-overload]
    )  # fmt: skip


def test_it_is_recorded_from_its_first_milliseconds(folder: Path) -> None:
    """A program that holds 60 MiB at once and lives for 0.5 s: samples begin within 0.1 s of its start."""
    (folder / "p.py").write_text("import time\nx = bytearray(60 << 20)\ntime.sleep(0.5)\n")
    done = run("-q", "-o", "x.memlens", "p.py")
    assert (done.returncode, done.stderr) == (0, "")
    trace = load(folder / "x.memlens")
    first = trace.events[0]
    assert first.time_us - trace.processes[0].started_us < 100_000  # type: ignore[union-attr]
    assert max(event.rss_bytes for event in trace.events) > 60 << 20  # type: ignore[union-attr,type-var]


def test_nothing_is_left_in_the_temporary_directory(folder: Path) -> None:
    """The folder of the channel is there while the program runs, and gone in the end."""
    (folder / "p.py").write_text("import os; print(os.path.dirname(os.environ['MEMLENS_CHANNEL']))\n")
    place = folder / "tmp"
    place.mkdir()
    done = run("-q", "p.py", env={**os.environ, "TMPDIR": str(place)})
    assert Path(done.stdout.strip()).parent == place
    assert list(place.iterdir()) == []


def test_descriptors_and_ignored_signals_are_as_without_us(folder: Path) -> None:
    """What the caller left open for the program is open, nothing of ours is; signals to 28 as before."""
    (folder / "p.py").write_text(
        "import os, signal\nprint(sorted(int(fd) for fd in os.listdir('/proc/self/fd') if int(fd) > 2))\n"
        "print(open('/proc/self/status').read().split('SigIgn:')[1].split()[0][-7:])\n"
        "os.write(77, b'through')\n"
    )
    reading, writing = os.pipe()
    os.dup2(writing, 77)
    try:
        for words in (["-q", "p.py"], ["-q", "--no-oom", "p.py"]):
            under = run(*words, pass_fds=(77,))
            bare = subprocess.run(
                [sys.executable, "p.py"], pass_fds=(77,), capture_output=True, text=True, check=False
            )
            assert under.stdout == bare.stdout, under.stderr
            assert os.read(reading, 100) == b"throughthrough"
    finally:
        for descriptor in (reading, writing, 77):
            os.close(descriptor)


def test_a_program_under_nohup_lives_on_when_the_terminal_closes(folder: Path) -> None:
    """What the caller ignores is ignored by the program as well."""
    (folder / "p.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGHUP)\nprint('lives')\n")
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        done = run("-q", "p.py")
    finally:
        signal.signal(signal.SIGHUP, before)
    assert (done.stdout, done.returncode) == ("lives\n", 0)


def test_a_signal_that_comes_at_once_reaches_the_program(folder: Path) -> None:
    """SIGTERM while the command line is still being loaded: the program decides, and its code comes back."""
    (folder / "p.py").write_text(
        "import signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "open('ready', 'w').close()\ntime.sleep(30)\n"
    )
    with subprocess.Popen([sys.executable, "-m", "memlens", "run", "-q", "p.py"]) as process:
        while not (folder / "ready").exists():
            time.sleep(0.002)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 7


def test_an_interpreter_that_is_not_there_is_one_line(folder: Path) -> None:
    """What cannot be started early is told by the usual way, and leaves no folder behind."""
    done = run("python9.9", "train.py", env={**os.environ, "TMPDIR": str(folder)})
    assert (done.returncode, done.stderr.strip()) == (2, "memlens: the program 'python9.9' was not found")
    assert not list(folder.glob("memlens-*"))


def test_a_program_that_cannot_be_recorded_any_more_still_runs_to_its_end(folder: Path) -> None:
    """The record's directory goes while the recorder loads: one line, and the program's own exit code."""
    (folder / "p.py").write_text("import sys, time\ntime.sleep(0.5)\nprint('done')\nsys.exit(5)\n")
    code = (
        "import sys\nfrom memlens.cli import recording_options\nfrom memlens.errors import RecordError\n"
        "def gone(self): raise RecordError('the directory is gone')\nrecording_options.Options.sink = gone\n"
        "sys.argv = ['memlens', 'run', 'p.py']\nfrom memlens.cli import main\nmain()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "TMPDIR": str(folder)}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (5, "done\n")
    assert done.stderr == "memlens: the directory is gone\n"
    assert not list(folder.glob("memlens-*"))
