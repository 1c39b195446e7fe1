"""Line profiles that count children: what a child holds is in the line that starts it, nothing of ours."""

from __future__ import annotations

import io
import mmap
import multiprocessing
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from memlens import LineProfiler, memory_usage, profile
from memlens.errors import UsageError
from memlens.measurement.host.own_process import own_rss_bytes
from memlens.model.lines import LineTable
from memlens.units import MIB

CHILD = "import sys; x = bytearray({}); print('ready', flush=True); sys.stdin.read()"


def child(size: int) -> subprocess.Popen[bytes]:
    """A process that holds `size` bytes until its input is closed."""
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen([sys.executable, "-c", CHILD.format(size)], **pipes)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    process.communicate()


def starts_and_ends() -> None:
    process = child(60 * MIB)
    end(process)
    del process


def forks(size: int) -> None:
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    block[::4096] = b"x" * (size // 4096)
    if (pid := os.fork()) == 0:
        time.sleep(60)
    time.sleep(0.05)
    os.kill(pid, 9)
    os.waitpid(pid, 0)


def table(function: Any, *args: Any, **options: Any) -> LineTable:
    profiler = LineProfiler(function, **options)
    profiler.runcall(function, *args)
    (found,) = profiler.tables()
    return found


def row(found: LineTable, text: str) -> Any:
    return next(row for row in found.body if text in row.source)


def test_a_child_is_in_the_line_that_starts_it() -> None:
    """60 MiB in a child: positive where it starts, negative where it ends; in no line without the option."""
    found = table(starts_and_ends, include_children=True)
    started, ended = row(found, "child(60"), row(found, "end(process)")
    assert 60 * MIB < started.increment_bytes < 90 * MIB
    assert ended.increment_bytes == pytest.approx(-started.increment_bytes, abs=3 * MIB)
    assert not found.peaks_are_exact
    alone = table(starts_and_ends)
    assert abs(row(alone, "child(60").increment_bytes) < 5 * MIB


def test_a_child_that_comes_and_goes_within_a_line_is_its_peak() -> None:
    """100 MiB in a child that lives within one line: the peak sees them, the net does not."""

    def one_line() -> None:
        subprocess.run(
            [sys.executable, "-c", "import time; x = bytearray(100 << 20); time.sleep(0.3)"], check=True
        )

    found = table(one_line, include_children=True)
    line = row(found, "subprocess.run")
    assert line.peak_bytes > 100 * MIB
    assert abs(line.increment_bytes) < 5 * MIB


def test_nothing_of_ours_is_counted() -> None:
    """Without a child the sum is this process: no helper process is among the children."""

    def alone() -> None:
        time.sleep(0.05)

    found = table(alone, include_children=True)
    assert row(found, "sleep").usage_bytes == pytest.approx(own_rss_bytes(), abs=3 * MIB)


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="PSS is Linux's")
def test_pss_counts_shared_pages_once() -> None:
    """A forked child shares 80 MiB with its parent: RSS counts them twice, PSS once."""
    twice = row(table(forks, 80 * MIB, include_children=True), "time.sleep(0.05)")
    once = row(table(forks, 80 * MIB, include_children=True, backend="pss"), "time.sleep(0.05)")
    before = own_rss_bytes()
    assert twice.usage_bytes > before + 150 * MIB
    assert once.usage_bytes < before + 110 * MIB


def test_the_decorator_counts_children() -> None:
    """`include_children` of memory_profiler's README, which its decorator does not have."""
    out = io.StringIO()
    profile(stream=out, include_children=True)(starts_and_ends)()
    assert re.search(r" [6-8]\d\.\d MiB +1 +[6-8]\d\.\d MiB +process = child", out.getvalue())
    assert "Peak (>=)" in out.getvalue()


def test_memory_usage_tells_children_apart_and_adds_them_up() -> None:
    """One entry for each process with `multiprocess`, their sum with `include_children`."""
    processes = [child(size * MIB) for size in (30, 50)]
    try:
        ((own, *children),) = memory_usage(-1, multiprocess=True)
        assert [round(size / 10) for size in sorted(children)] == [4, 6]
        (together,) = memory_usage(-1, include_children=True)
        assert together == pytest.approx(own + sum(children), abs=2)
    finally:
        for process in processes:
            end(process)


def test_what_counts_this_process_alone_is_refused() -> None:
    """tracemalloc sees no other process: an option without effect would be a wrong number."""
    with pytest.raises(UsageError, match="counts this process alone"):
        LineProfiler(starts_and_ends, backend="tracemalloc", include_children=True)


POOL = """\
import multiprocessing, pickle, sys
from memlens import profile

@profile
def decorated(n):
    return len(bytearray(n))

if __name__ == "__main__":
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        assert pool.map(decorated, [10, 20]) == [10, 20]
"""


@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_a_decorated_function_is_a_pools_target(tmp_path: Path, method: str) -> None:
    """It pickles by its name, whichever way the pool starts its workers; each call prints its table there."""
    (tmp_path / "p.py").write_text(POOL)
    command = [sys.executable, "p.py", method]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("return len(bytearray(n))") == 2


def test_a_forked_child_adds_up_its_own_children() -> None:
    """After a fork the sum is the child's own family: the parent's other children are not in it."""
    sibling = child(100 * MIB)
    profiler = LineProfiler(child_of_child, include_children=True)
    reading, writing = os.pipe()
    try:
        with profiler:
            if (pid := os.fork()) == 0:
                child_of_child()
                os.write(writing, str(profiler.tables()[0].body[0].usage_bytes).encode())
                os._exit(0)
            os.waitpid(pid, 0)
        assert int(os.read(reading, 100)) < own_rss_bytes() + 50 * MIB
    finally:
        os.close(reading)
        os.close(writing)
        end(sibling)


def child_of_child() -> int:
    return 1
