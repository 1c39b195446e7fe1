"""Line by line: what each line added, what it needed while it ran, and that the sums close."""

from __future__ import annotations

import asyncio
import mmap
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from memlens.errors import UsageError
from memlens.measurement.host.own_process import own_reader
from memlens.measurement.lines.profiler import LineProfiler, code_of
from memlens.model.lines import LineRow, LineTable
from memlens.units import MIB

SIZE = 40 * MIB  # above every threshold under which malloc keeps memory


def fresh(size: int) -> mmap.mmap:
    """`size` bytes from the system, touched: malloc would serve them from memory that it kept."""
    block = mmap.mmap(-1, size)
    block[::4096] = b"x" * -(-size // 4096)
    return block


@pytest.fixture
def full_heap() -> Iterator[None]:
    """Small objects fill what earlier tests left free, so that new ones need new pages."""
    read = own_reader()
    kept: list[Any] = []
    full = read() + 8 * MIB
    while read() < full:
        start = len(kept) * 2000
        kept.append([(str(i), [i], {i: i}, i + 10**6) for i in range(start, start + 2000)])
    yield
    del kept


def profiled(function: Any, *args: Any) -> LineTable:
    profiler = LineProfiler(function)
    profiler.runcall(function, *args)
    (table,) = profiler.tables()
    return table


def at(table: LineTable, text: str) -> LineRow:
    (row,) = (row for row in table.rows if text in row.source)
    return row


def temporary() -> int:
    return len(fresh(SIZE))


def kept_and_freed() -> None:
    kept = fresh(SIZE)
    del kept


def textbook(n: int) -> int:
    total = 0
    for i in range(5):
        L = [j ^ (j >> i) for j in range(n)]
        total += sum(L)
        del L
    return total


def recursive(depth: int) -> mmap.mmap:
    block = fresh(SIZE)
    if depth:
        recursive(depth - 1)
    return block


def gone(depth: int) -> None:
    if depth:
        gone(depth - 1)
    raise ValueError(depth)


def produce(n: int) -> Iterator[int]:
    for _ in range(n):
        block = fresh(SIZE)
        yield len(block)


async def waiter(size: int) -> int:
    await asyncio.sleep(0)
    block = fresh(size)
    await asyncio.sleep(0.01)
    return len(block)


def growing(make: Any, n: int) -> list[Any]:
    kept = [None] * n
    for i in range(n):
        calm = i * 2
        kept[i] = make(i)
        calm += i
    return kept


def tight(n: int) -> int:
    total = 0
    while total < n:
        total += 1
    return total


def multiline(n: int) -> list[int]:
    return [
        x + 1
        for x in range(n)
    ]  # fmt: skip


def test_a_temporary_inside_one_line_is_its_peak_and_not_its_net() -> None:
    """381 MiB of doubles that live within one line: peak 381 +- 2 MiB, net about 0."""
    np = pytest.importorskip("numpy")

    def sums() -> float:
        return float((np.ones(5 * 10**7) * 2).sum())

    table = profiled(sums)
    assert (table.body[0].peak_bytes or 0) / MIB == pytest.approx(381.5, abs=2)
    assert abs(table.body[0].increment_bytes or 0) < MIB
    assert table.peaks_are_exact


def test_net_and_peak_of_a_line_are_told_apart() -> None:
    """A line that allocates, a line that frees, and a line that does both."""
    table = profiled(kept_and_freed)
    assert at(table, "fresh").increment_bytes == pytest.approx(SIZE, abs=MIB // 2)
    assert at(table, "del kept").increment_bytes == pytest.approx(-SIZE, abs=MIB // 2)
    assert abs(table.net_bytes) < MIB
    temp = profiled(temporary).body[0]
    assert (abs(temp.increment_bytes or 0) < MIB, temp.peak_bytes) == (True, pytest.approx(SIZE, abs=MIB))


@pytest.mark.usefixtures("full_heap")
def test_increments_in_a_loop_add_up_to_last_minus_first() -> None:
    """The loop that memory_profiler reports with huge negatives: the list is positive, `del` is negative."""
    table = profiled(textbook, 200_000)
    made, freed = at(table, "L = ["), at(table, "del L")
    assert made.occurrences == freed.occurrences == 5
    assert (made.increment_bytes or 0) > 5 * MIB
    assert -(freed.increment_bytes or 0) <= (made.increment_bytes or 0) + MIB
    assert (freed.increment_bytes or 0) < -5 * MIB
    last = at(table, "return total").usage_bytes or 0
    assert table.net_bytes == last - table.start_bytes


def test_a_comprehension_is_one_step_of_its_line() -> None:
    """Its elements are not lines of the function, on one source line or on several."""
    assert at(profiled(textbook, 1000), "L = [").occurrences == 5
    assert sum(row.occurrences for row in profiled(multiline, 100_000).body) < 10


def test_recursion_counts_every_byte_once() -> None:
    """Four frames deep: the allocating line holds four blocks, whatever the calls in between add up to."""
    table = profiled(recursive, 3)
    assert (table.calls, at(table, "fresh(").occurrences) == (4, 4)
    assert at(table, "fresh(").increment_bytes == pytest.approx(4 * SIZE, abs=2 * MIB)
    assert at(table, "recursive(depth - 1)").peak_bytes == pytest.approx(3 * SIZE, abs=2 * MIB)
    # the three inner blocks are freed as their frames end, after the last line: the last one by the caller
    assert table.rows[0].occurrences == 4


def test_recursion_900_deep_ends() -> None:
    """State is per frame; the depth costs no more than the frames."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(5000)
    try:
        with pytest.raises(ValueError, match="0"):
            profiled(gone, 900)
    finally:
        sys.setrecursionlimit(limit)


def test_an_exception_closes_the_frames_that_it_leaves() -> None:
    """What the program allocates after a caught exception is not the failed function's."""
    profiler = LineProfiler(gone)
    kept = []
    with profiler:
        for _ in range(3):
            with pytest.raises(ValueError, match="0"):
                gone(2)
            kept.append(fresh(SIZE))
    (table,) = profiler.tables()
    assert (table.calls, abs(table.net_bytes) < 4 * MIB) == (9, True)


def test_a_generator_is_charged_only_for_its_own_steps() -> None:
    """What the consumer allocates between two steps is not the generator's."""
    profiler, kept = LineProfiler(produce), []
    with profiler:
        kept.extend(fresh(SIZE) for _ in produce(3))
    (table,) = profiler.tables()
    assert at(table, "fresh").occurrences == at(table, "yield").occurrences == 3
    assert table.net_bytes == pytest.approx(SIZE, abs=SIZE)  # one block lives, one dies with the frame
    assert (at(table, "yield").peak_bytes or 0) < MIB


def test_coroutines_that_interleave_keep_their_lines_apart() -> None:
    """Two at once: the line that waits is not charged for the other's block."""

    async def both() -> list[int]:
        return list(await asyncio.gather(waiter(SIZE), waiter(2 * SIZE)))

    profiler = LineProfiler(waiter)
    with profiler:
        assert asyncio.run(both()) == [SIZE, 2 * SIZE]
    (table,) = profiler.tables()
    assert at(table, "fresh").increment_bytes == pytest.approx(3 * SIZE, abs=MIB)
    assert abs(at(table, "sleep(0.01)").increment_bytes or 0) < MIB


def test_threads_have_their_own_frames() -> None:
    """Two threads in one function at once: both calls and every line of both are counted."""
    profiler = LineProfiler(tight)
    with profiler:
        threads = [threading.Thread(target=tight, args=(2000,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    (table,) = profiler.tables()
    assert (table.calls, at(table, "total += 1").occurrences) == (2, 4000)


@pytest.mark.usefixtures("full_heap")
@pytest.mark.parametrize("make", [str, lambda i: [i], lambda i: {i: i}], ids=["str", "list", "dict"])
def test_small_objects_are_charged_to_the_line_that_makes_them(make: Any) -> None:
    """Page by page, although the profiler's own objects share the pages, and calm lines are read less."""
    table = profiled(growing, make, 60_000)
    assert (at(table, "make(i)").increment_bytes or 0) > 0.6 * (
        table.net_bytes - (at(table, "kept = ").increment_bytes or 0)
    )
    assert (at(table, "calm = i").increment_bytes or 0) < 0.2 * table.net_bytes
    assert (at(table, "calm += i").increment_bytes or 0) < 0.2 * table.net_bytes


def test_lines_that_change_nothing_are_read_less_and_say_so() -> None:
    """20,000 calm lines: every execution is counted, fewer are followed by a reading, and both are told."""
    table = profiled(tight, 10_000)
    assert at(table, "total += 1").occurrences == 10_000
    assert table.lines_run == 20_003
    assert 100 < table.lines_read < 15_000


def test_the_previous_tracer_is_put_back() -> None:
    """A debugger's or coverage's tracer, and the tool ids of sys.monitoring, are as they were."""
    before = sys.gettrace()

    def tracer(*_: object) -> None:
        return None

    tools = [sys.monitoring.get_tool(tool) for tool in range(6)] if sys.version_info >= (3, 12) else []
    sys.settrace(tracer)
    try:
        profiled(tight, 10)
        with pytest.raises(ValueError, match="0"):
            profiled(gone, 0)
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)
    after = [sys.monitoring.get_tool(tool) for tool in range(6)] if sys.version_info >= (3, 12) else []
    assert tools == after


def test_two_profilers_on_one_function_both_see_it() -> None:
    """They do not fight over the tracer: each has the whole table."""
    outer, inner = LineProfiler(tight), LineProfiler(tight)
    with outer:
        tight(10)
        with inner:
            tight(5)
    assert (outer.tables()[0].calls, inner.tables()[0].calls) == (2, 1)


def test_equal_code_bodies_are_two_functions() -> None:
    """Two functions with the same text are told apart by identity of place, not by a hash."""
    spaces: list[dict[str, Any]] = [{}, {}]
    for number, space in enumerate(spaces):
        exec(compile("def same():\n    return 1\n", f"<same {number}>", "exec"), space)
    profiler = LineProfiler(*(space["same"] for space in spaces))
    with profiler:
        spaces[0]["same"]()
    assert [table.file for table in profiler.tables()] == ["<same 0>"]


def test_files_are_watched_when_they_first_run(tmp_path: Any) -> None:
    """Every function of a file and its module level, found as they run."""
    path = tmp_path / "script.py"
    path.write_text("def f():\n    return 1\nclass A:\n    def m(self):\n        return f()\nx = A().m()\n")
    with LineProfiler(files=[path]) as profiler:
        exec(compile(path.read_text(), str(path), "exec"), {"__name__": "s"})
    assert {table.function for table in profiler.tables()} == {"<module>", "f", "A", "A.m"}


def test_python_level_counts_memory_that_was_re_used() -> None:
    """The same list three times: RSS may grow once, what Python handed out is the same each time."""

    def build() -> list[int]:
        return list(range(100_000, 400_000))

    figures = []
    for _ in range(3):
        profiler = LineProfiler(build, python_level=True)
        profiler.runcall(build)
        figures.append(profiler.tables()[0].body[0].python_peak_bytes or 0)
    assert max(figures) - min(figures) < 4096
    assert figures[0] > 300_000 * 28  # an int is 28 bytes, and in the list 8 more


def test_what_has_no_python_lines_is_refused_with_a_way_out() -> None:
    """A builtin cannot be profiled by lines; the error says what can."""
    with pytest.raises(UsageError, match="no Python lines"):
        code_of(len)


def test_a_table_survives_json() -> None:
    """Written and read back, a table is equal to itself."""
    import json

    table = profiled(textbook, 100)
    assert LineTable.from_dict(json.loads(json.dumps(table.to_dict()))) == table


@pytest.mark.usefixtures("full_heap")
def test_the_textbook_loop_with_a_million_ends() -> None:
    """Five lists of 1,000,000 XORs, summed and deleted: each line counted, the sums close."""
    table = profiled(textbook, 10**6)
    made, freed = at(table, "L = ["), at(table, "del L")
    assert (made.occurrences, freed.occurrences) == (5, 5)
    assert (made.peak_bytes or 0) > 15 * MIB
    net = (made.increment_bytes or 0) + (freed.increment_bytes or 0)
    assert net == pytest.approx(table.net_bytes, abs=4 * MIB)
