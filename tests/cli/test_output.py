"""Where answers go: files that cannot be written, closed pipes, full disks, narrow terminals, encodings."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.desk import lay_out

from memlens.cli.main import COMMANDS
from memlens.model import Trace
from memlens.records import native

WRITERS = [
    ["snapshot", "snapshot.pickle"],
    ["compare", "before.memlens", "after.memlens"],
    ["plot", "0"],
    ["predict", "net.py:make_model"],
    ["summary", "net.py:make_model"],
]


def memlens(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[bytes]:
    lay_out(folder, ["memlens", *words])
    return subprocess.run(
        [sys.executable, "-m", "memlens", *words], cwd=folder, capture_output=True, timeout=60, check=False,
        env={**os.environ, **environment},
    )  # fmt: skip


@pytest.mark.parametrize("words", WRITERS, ids=lambda words: words[0])
@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("there.json", "will not overwrite"),
        ("no/where.json", "there is no folder no"),
        ("d.json", "a directory"),
    ],
)
def test_a_file_that_cannot_be_written_is_refused_at_once(
    words: list[str], output: str, said: str, tmp_path: Path
) -> None:
    """One line and exit code 2, before anything is computed (predict has not even loaded torch)."""
    (tmp_path / "d.json").mkdir()
    (tmp_path / "there.json").write_text("mine")
    done = memlens(tmp_path, *words, "-o", output)
    assert done.returncode == 2
    assert said in done.stderr.decode().splitlines()[0]
    assert (tmp_path / "there.json").read_text() == "mine"
    assert b"Traceback" not in done.stderr


def test_a_closed_pipe_is_141_and_silent(tmp_path: Path) -> None:
    """`memlens gpus | head -1` ends as `seq 100000 | head -1` does: nothing on stderr, never predict's 1."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "memlens", "gpus"],
        stdout=write,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.skipif(os.name != "posix", reason="a shell's `>&-`")
@pytest.mark.parametrize(("words", "code"), [(["gpus"], 0), (["run", "seven.py"], 7), (["gpus", "h999"], 2)])
def test_closed_streams_change_nothing(tmp_path: Path, words: list[str], code: int) -> None:
    """Where standard output or error was closed nobody listens: exit codes are what they would have been."""
    (tmp_path / "seven.py").write_text("raise SystemExit(7)")
    for closed in (">&-", "2>&-", "<&- >&- 2>&-"):
        shell = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "memlens", *words]
        done = subprocess.run(shell, cwd=tmp_path, capture_output=True, timeout=60, check=False)
        assert done.returncode == code
        assert b"Traceback" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a disk that is always full")
def test_a_full_disk_is_one_line(tmp_path: Path) -> None:
    """The system's own words, and exit code 2."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "memlens", "gpus"],
            stdout=full,
            stderr=subprocess.PIPE,
            timeout=60,
            check=False,
        )
    assert (done.returncode, done.stderr.strip()) == (2, b"memlens: No space left on device")


@pytest.mark.parametrize(
    "words", [["gpus", "4060"], ["snapshot", "snapshot.pickle"], ["plot", "0"]], ids=" ".join
)
def test_an_encoding_without_blocks_gets_ascii(words: list[str], tmp_path: Path) -> None:
    """Where the terminal has no block characters there are others; nothing fails, at 40 columns neither."""
    done = memlens(tmp_path, *words, PYTHONIOENCODING="ascii", COLUMNS="40", PYTHONUTF8="0")
    assert done.returncode == 0
    assert done.stdout.isascii()


def test_a_narrow_terminal_keeps_the_names_of_cards(tmp_path: Path) -> None:
    """At 40 columns a card has its name and its memory; the other columns go first."""
    lines = memlens(tmp_path, "gpus", "4060", COLUMNS="40").stdout.decode().splitlines()
    assert lines[0].split() == ["card", "memory", "GiB"]
    assert lines[1].split() == ["RTX", "4060", "7.52"]


@pytest.mark.parametrize("command", ["predict", "advise"])
def test_memory_without_a_unit_is_refused(command: str, tmp_path: Path) -> None:
    """`--memory 24` would be a card of 24 bytes: the answer asks for the unit."""
    assert command in COMMANDS
    done = memlens(tmp_path, command, "net.py:make_model", "--memory", "24")
    assert done.returncode == 2
    assert b"--memory 24 is 24 bytes" in done.stderr
    assert b"--memory 24GiB" in done.stderr


def test_nothing_is_drawn_of_nothing(tmp_path: Path) -> None:
    """A window after the end, and a record of nothing, are told; no empty picture is shown."""
    after = memlens(tmp_path, "plot", "0", "-w", "50,60")
    assert (after.returncode, after.stdout) == (2, b"")
    assert b"it ends at" in after.stderr
    native.save(Trace("measured"), tmp_path / "nothing.memlens")
    for command in ("plot", "peak"):
        done = memlens(tmp_path, command, "nothing.memlens")
        assert (done.returncode, done.stdout) == (2, b"")
        assert b"holds no resident memory" in done.stderr


def test_an_empty_file_is_called_empty(tmp_path: Path) -> None:
    """Of an empty file nothing can be said about how it begins."""
    (tmp_path / "empty.dat").write_text("")
    (tmp_path / "empty.pickle").write_text("")
    assert memlens(tmp_path, "plot", "empty.dat").stderr.strip() == b"memlens: empty.dat is empty"
    assert b"it is empty" in memlens(tmp_path, "snapshot", "empty.pickle").stderr
