"""memory_profiler's names: scripts change one import and run."""

from __future__ import annotations

import asyncio
import io
import logging
import mmap
import sys

import pytest

from memlens.compat import memory_profiler as mp
from memlens.errors import MemlensError


def work() -> int:
    return sum(range(10))


def test_a_line_profiler_is_called_wrapped_and_shown() -> None:
    """`LineProfiler()(f)`, then `show_results`, as memory_profiler's own examples do."""
    profiler, out = mp.LineProfiler(), io.StringIO()
    assert profiler(work)() == 45
    mp.show_results(profiler, stream=out, precision=2)
    assert "return sum(range(10))" in out.getvalue()


def test_a_line_profiler_counts_children_on_request() -> None:
    """`include_children` reaches the reading; a backend that cannot is an error and not ignored."""
    assert [meter.exact for meter in mp.LineProfiler(include_children=True).meters] == [False]
    with pytest.raises(MemlensError, match="this process alone"):
        mp.LineProfiler(backend="tracemalloc", include_children=True)


def test_a_line_profiler_decorates_bare_called_and_coroutines() -> None:
    """`@profiler`, `@profiler(precision=3)`, and an async function that stays one."""
    profiler = mp.LineProfiler()

    @profiler(precision=3)
    async def wait() -> int:
        return 3

    assert asyncio.run(wait()) == 3
    assert [table.calls for table in profiler.tables()] == [1]
    assert profiler.runctx("work()", {"work": profiler(work)}, {}) is profiler
    assert len(profiler.tables()) == 2


def grow() -> int:
    block = mmap.mmap(-1, 30 << 20)  # from the system: malloc would serve it from memory that it kept
    block[::4096] = b"x" * 7680
    block[0] = 1
    return len(block)


def test_max_mem_opens_a_debugger_at_the_line_after_the_limit_was_passed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """20 MiB above the memory of now: pdb stands at the line after the 30 MiB; then the function goes on."""
    limit = mp.memory_usage(-1)[0] + 20
    monkeypatch.setattr("sys.stdin", io.StringIO("p 'held', len(block)\nc\n"))
    tracer = sys.gettrace()
    profiler = mp.LineProfiler(max_mem=limit)
    assert profiler(grow)() == 30 << 20
    said = capsys.readouterr()
    assert "('held', 31457280)" in said.out
    assert "-> block[0] = 1" in said.out
    assert "a debugger at line" in said.err
    assert sys.gettrace() is tracer


def test_below_max_mem_nothing_stops(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit that is never passed: the debugger would read the missing input and fail."""
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    assert mp.LineProfiler(max_mem=1e6)(grow)() == 30 << 20


def test_a_log_file_writes_only_lines_that_changed(caplog: pytest.LogCaptureFixture) -> None:
    """With `reportIncrementFlag`, rows of increment 0 are left out."""
    log = mp.LogFile("lines", reportIncrementFlag=True)
    with caplog.at_level(logging.INFO, "lines"):
        log.write("     1     20.0 MiB      0.0 MiB   1   a\n     2     21.0 MiB      1.0 MiB   1   b\n")
    assert [record.message.split()[-1] for record in caplog.records] == ["b"]


def test_a_time_stamper_has_memory_and_time_at_both_ends() -> None:
    """One span for each call and block, in mprof's FUNC lines."""
    stamps, out = mp.TimeStamper(), io.StringIO()
    assert stamps(work)() == 45
    with stamps.timestamp("load"):
        pass
    stamps.show_results(out)
    assert [line.split()[1] for line in out.getvalue().splitlines()] == [f"{__name__}.work", "load"]


def test_backends_keep_their_names() -> None:
    """memory_profiler's names choose memlens's meters."""
    names = ["psutil", "psutil_pss", "psutil_uss", "posix", "tracemalloc", None]
    assert [mp.choose_backend(name) for name in names] == ["rss", "pss", "uss", "rss", "tracemalloc", "rss"]


def test_the_profile_of_memory_profiler_is_a_profiler_too() -> None:
    """A decorator, and what scripts switch on and off by hand; each line's figures are in `code_map`."""
    made: list[mmap.mmap] = []
    page = b"x" * (8 << 20)

    def load() -> None:
        made.append(mmap.mmap(-1, 8 << 20)), made[-1].write(page)  # from the system, not what malloc kept

    profile = mp._Profile()
    profile.add_function(load)
    with profile:
        load()
    profile.enable_by_count()
    load()
    profile.disable_by_count()
    ((file, lines),) = profile.code_map.items()
    assert file == __file__
    added, in_use, times = dict(lines)[load.__code__.co_firstlineno + 1]
    assert (round(added), times) == (16, 2)
    assert in_use > 16
    text = io.StringIO()
    mp.show_results(profile, text)
    assert "made.append" in text.getvalue()
    assert profile(load).__wrapped__ is load
