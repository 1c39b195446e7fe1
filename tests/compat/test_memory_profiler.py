"""memory_profiler's names: scripts change one import and run."""

from __future__ import annotations

import io
import logging

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


def test_what_is_not_done_is_an_error_and_not_ignored() -> None:
    """include_children without effect would be a wrong number."""
    with pytest.raises(MemlensError, match="this process alone"):
        mp.LineProfiler(include_children=True)


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
