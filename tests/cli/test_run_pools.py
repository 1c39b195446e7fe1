"""`memlens run` of programs with workers: `profile` is known in each, the lines of all are in the record."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memlens.model import Trace
from memlens.model.lines import LineTable
from memlens.records import load
from memlens.units import MIB

POOL = """\
import multiprocessing, sys
@profile
def work(n):
    block = bytearray(n << 20)
    total = sum(block[::4096])
    return n
if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        assert pool.map(work, [10, 20, 30]) == [10, 20, 30]
    work(5)
"""
METHODS = multiprocessing.get_all_start_methods()


def run(folder: Path, text: str, *arguments: str, options: tuple[str, ...] = (), typed: str = "") -> Any:
    """Run a script under memlens; what it printed, and the record."""
    (folder / "script.py").write_text(text)
    words = [
        sys.executable,
        "-m",
        "memlens",
        "run",
        "-q",
        "-o",
        "x.memlens",
        *options,
        "script.py",
        *arguments,
    ]
    done = subprocess.run(
        words, cwd=folder, text=True, capture_output=True, timeout=60, check=False, input=typed
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, load(folder / "x.memlens")


def tables(trace: Trace) -> list[LineTable]:
    return [LineTable.from_dict(table) for table in trace.metadata["lines"]]


@pytest.mark.parametrize("method", METHODS)
def test_workers_know_profile(tmp_path: Path, method: str) -> None:
    """Each call in a worker is on the timeline, however the worker was started."""
    _, trace = run(tmp_path, POOL, method)
    assert len([span for span in trace.spans if span.name.endswith(".work")]) == 4
    assert len({span.pid for span in trace.spans} - {trace.processes[0].pid}) in (1, 2)


@pytest.mark.parametrize("method", METHODS)
def test_lines_of_workers_are_added_up(tmp_path: Path, method: str) -> None:
    """The program's own call has a table; the pool's three calls, which end by being killed, have another."""
    out, trace = run(tmp_path, POOL, method, options=("--lines",))
    own, workers = tables(trace)
    assert (own.children, own.calls, workers.calls) == (0, 1, 3)
    block = workers.row(4)
    assert (block.occurrences, workers.children) in ((3, 1), (3, 2))
    assert block.increment_bytes == pytest.approx(60 * MIB, abs=MIB)
    assert block.peak_bytes == pytest.approx(30 * MIB, abs=MIB)
    assert own.row(4).increment_bytes == pytest.approx(5 * MIB, abs=MIB)
    assert "child process" in out


def test_lines_of_an_executor_and_of_a_bare_fork(tmp_path: Path) -> None:
    """Workers that end by themselves tell everything; a fork counts from the fork on."""
    text = (
        "import concurrent.futures, os\n@profile\ndef work(n):\n    return len(bytearray(n << 20))\n"
        "if __name__ == '__main__':\n    work(1); work(1)\n"
        "    with concurrent.futures.ProcessPoolExecutor(2) as pool:\n"
        "        list(pool.map(work, [10, 20]))\n"
        "    if os.fork() == 0:\n        work(40)\n    else:\n        os.wait()\n"
    )
    own, workers = tables(run(tmp_path, text, options=("--lines",))[1])
    assert (own.calls, workers.calls) == (2, 3)
    assert workers.row(4).peak_bytes == pytest.approx(40 * MIB, abs=MIB)


def test_lines_count_children_on_request(tmp_path: Path) -> None:
    """-C adds what a child holds to the line that runs it; precision is memory_profiler's 3 and can be 1."""
    text = (
        "import subprocess, sys\n@profile\ndef f():\n    subprocess.run([sys.executable, '-c', "
        "'import time; x = bytearray(60 << 20); time.sleep(0.3)'])\nf()\n"
    )
    out, trace = run(tmp_path, text, options=("--lines", "-C", "--precision", "1"))
    (table,) = tables(trace)
    assert table.row(4).peak_bytes > 60 * MIB
    assert "Peak (>=)" in out
    assert ".000 MiB" not in out


def test_a_debugger_where_memory_passes_a_limit(tmp_path: Path) -> None:
    """--pdb-mmem stops at the line after the one that took 200 MiB, and reads from our own input."""
    text = "@profile\ndef f():\n    x = bytearray(200 << 20)\n    y = len(x)\n    return y\nf()\n"
    out, _ = run(tmp_path, text, options=("--pdb-mmem", "150"), typed="p 'seen', len(x)\nc\n")
    assert "-> y = len(x)" in out
    assert "('seen', 209715200)" in out


def test_what_the_program_sees_of_multiprocessing_is_its_own(tmp_path: Path) -> None:
    """Nothing but the entry that carries `profile` is added to what a worker is told."""
    text = (
        "import multiprocessing.spawn as spawn, pickle\n"
        "if __name__ == '__main__':\n"
        "    data = spawn.get_preparation_data('x')\n"
        "    assert data.pop('memlens') is not None and data['name'] == 'x'\n"
        "    assert spawn.get_preparation_data.__wrapped__('x') == data\n"
    )
    run(tmp_path, text)


def test_a_worker_that_cannot_read_us_goes_on(tmp_path: Path) -> None:
    """A worker in another root, or of another user, does its work without `profile`."""
    text = (
        "import multiprocessing, sys\ndef work(n):\n    return n + 1\n"
        "if __name__ == '__main__':\n"
        "    sys.modules['_memlens_bootstrap'].__file__ = '/nowhere/bootstrap.py'\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n"
        "        print(pool.map(work, [1, 2]))\n"
    )
    out, _ = run(tmp_path, text)
    assert out == "[2, 3]\n"


def test_children_that_end_without_a_word_are_said_to_be_missing(tmp_path: Path) -> None:
    """Three forks leave by os._exit at once: their lines are not known, and a note says of how many."""
    text = (
        "import os\n@profile\ndef f():\n    return 1\nf()\nfor _ in range(3):\n"
        "    if os.fork() == 0:\n        f(); os._exit(0)\nfor _ in range(3): os.wait()\n"
    )
    _, trace = run(tmp_path, text, options=("--lines",))
    assert [table.calls for table in tables(trace)] == [1]
    (note,) = trace.assumptions
    assert note.what == "3 child processes may have run more lines than the tables say"


def test_workers_of_a_pool_have_told_everything(tmp_path: Path) -> None:
    """What they were given back for is complete, although the pool kills them: no note."""
    one = POOL.replace("Pool(2)", "Pool(1)")  # of two, one may be killed before it has begun
    assert run(tmp_path, one, "fork", options=("--lines",))[1].assumptions == []
