"""The decorator: what it keeps of a function, and what it prints."""

from __future__ import annotations

import asyncio
import functools
import inspect
import io
import mmap
import pickle
import re
import sys
import threading
from typing import Any

import pytest

from memlens import profile
from memlens.errors import UsageError
from memlens.units import MIB


def fresh(size: int) -> mmap.mmap:
    """`size` bytes from the system, touched: malloc would serve them from memory that it kept."""
    block = mmap.mmap(-1, size)
    block[::4096] = b"x" * -(-size // 4096)
    return block


OUT = io.StringIO()


@profile(stream=OUT)
def pickled(n: int, *, twice: bool = False) -> int:
    """Kept."""
    return n * (2 if twice else 1)


@profile(stream=OUT)
async def fetch(n: int) -> int:
    block = fresh(n)
    await asyncio.sleep(0)
    return len(block)


@profile(stream=OUT)
def numbers(n: int) -> Any:
    try:
        got = yield n
        yield got
    finally:
        n = 0
    return "end"


@profile(stream=OUT)
async def stream(n: int) -> Any:
    for i in range(n):
        await asyncio.sleep(0)
        yield i


@profile(stream=OUT)
def down(n: int) -> int:
    return down(n - 1) if n else 0


@profile(stream=OUT)
def boom() -> None:
    block = fresh(40 * MIB)
    raise ValueError(len(block))


@profile(stream=OUT)
class Shop:
    def method(self) -> str:
        return "method"

    @classmethod
    def of_class(cls) -> type:
        return cls

    @staticmethod
    def static(n: int) -> int:
        return n

    @property
    def size(self) -> int:
        return 7


@pytest.fixture(autouse=True)
def _empty() -> None:
    OUT.seek(0)
    OUT.truncate()


def tables() -> list[str]:
    return [part for part in OUT.getvalue().split("Filename: ") if part]


def test_a_function_keeps_its_signature_its_name_and_its_place() -> None:
    """inspect, functools and pickle see the function that was written."""
    assert str(inspect.signature(pickled)) == "(n: 'int', *, twice: 'bool' = False) -> 'int'"
    assert (pickled.__name__, pickled.__doc__) == ("pickled", "Kept.")
    assert not hasattr(pickled.__wrapped__, "__wrapped__")  # type: ignore[attr-defined]
    assert pickle.loads(pickle.dumps(pickled)) is pickled
    assert pickled(4, twice=True) == 8


def test_the_classic_columns_to_the_letter() -> None:
    """`classic` prints what memory_profiler prints, spaces included; the blank rows hold no numbers."""
    out = io.StringIO()

    @profile(stream=out, classic=True, precision=3)
    def classic() -> None:
        # a comment
        return None

    classic()
    lines = out.getvalue().splitlines()
    assert lines[0] == f"Filename: {__file__}"
    assert lines[2] == "Line #    Mem usage    Increment  Occurrences   Line Contents"
    assert lines[3] == "=" * 61
    assert re.fullmatch(r" {3,5}\d+ +\d+\.\d{3} MiB +\d+\.\d{3} MiB {11}1       @profile\(.*\)", lines[4])
    assert lines[6].split(maxsplit=1)[1] == "# a comment"
    assert lines[6].index("#") == lines[7].index("return")
    assert re.fullmatch(r" +\d+ +\d+\.\d{3} MiB    0\.000 MiB           1           return None", lines[7])


def test_the_peak_column_stands_behind_the_columns_that_old_programs_read() -> None:
    """Whatever splits a row and takes the first six words still finds what it looked for."""
    pickled(1)
    row = next(line for line in OUT.getvalue().splitlines() if "return n" in line).split()
    assert (row[2], row[4], row[5], row[7]) == ("MiB", "MiB", "1", "MiB")
    header = tables()[0].splitlines()[2]
    assert header.split() == [*"Line # Mem usage Increment Occurrences Peak Line Contents".split()]


def test_a_coroutine_function_stays_one() -> None:
    """asyncio.run takes it on every Python; the line that waits is in the table."""
    assert inspect.iscoroutinefunction(fetch)
    assert asyncio.run(fetch(1000)) == 1000
    assert "await asyncio.sleep(0)" in tables()[0]


def test_two_coroutines_at_once_have_a_table_each() -> None:
    """Interleaved on one thread, each with its own block and its own numbers."""

    async def both() -> None:
        await asyncio.gather(fetch(60 * MIB), fetch(40 * MIB))

    asyncio.run(both())
    found = [re.search(r"([\d.]+) MiB +1 +[\d.]+ MiB +block", table) for table in tables()]
    assert sorted(round(float(match[1])) for match in found if match) == [40, 60]


def test_a_generator_prints_when_it_is_exhausted_and_when_it_is_closed() -> None:
    """send, throw, close and the return value pass through; the table comes at the end."""
    assert inspect.isgeneratorfunction(numbers)
    running = numbers(1)
    assert (next(running), running.send("sent")) == (1, "sent")
    assert not tables()
    with pytest.raises(StopIteration) as stop:
        next(running)
    assert (stop.value.value, len(tables())) == ("end", 1)
    closed = numbers(2)
    next(closed)
    closed.close()
    thrown = numbers(3)
    next(thrown)
    with pytest.raises(KeyError):
        thrown.throw(KeyError("x"))
    assert len(tables()) == 3


def test_an_asynchronous_generator_stays_one() -> None:
    """It is iterated, and closed in the middle, as without the decorator."""
    assert inspect.isasyncgenfunction(stream)

    async def some() -> list[int]:
        found = [i async for i in stream(3)]
        running = stream(5)
        found.append(await anext(running))
        await running.aclose()
        return found

    assert asyncio.run(some()) == [0, 1, 2, 0]
    assert len(tables()) == 2


def test_a_recursive_function_prints_one_table_per_outermost_call() -> None:
    """Four frames, one table that counts four calls."""
    down(3)
    assert len(tables()) == 1
    assert re.search(r" 4 +@profile", tables()[0])


def test_an_exception_still_prints_the_table() -> None:
    """The report of a function that fails is the one that is needed most."""
    with pytest.raises(ValueError, match=str(40 * MIB)):
        boom()
    assert re.search(r"(40\.[0-2]|39\.9) MiB +1 +(40\.\d|39\.\d) MiB +block = ", tables()[0])


def test_every_method_of_a_class_is_decorated_and_still_what_it_was() -> None:
    """Methods, classmethods, staticmethods and properties; the class itself is returned."""
    shop = Shop()
    assert (shop.method(), Shop.of_class(), Shop.static(3), shop.size) == ("method", Shop, 3, 7)
    assert len(tables()) == 4
    assert isinstance(inspect.getattr_static(Shop, "of_class"), classmethod)


def test_partials_caches_and_callable_objects_are_decorated() -> None:
    """What wraps a function is called as it is; the lines are those of the function inside."""

    def add(a: int, b: int) -> int:
        return a + b

    class Adder:
        def __call__(self, a: int) -> int:
            return a + 1

    decorate = profile(stream=OUT)
    cached = decorate(functools.lru_cache(add))
    assert (decorate(functools.partial(add, 1))(2), cached(1, 2), cached(1, 2)) == (3, 3, 3)
    assert decorate(Adder())(1) == 2
    assert [("return a + 1" in table, "return a + b" in table) for table in tables()] == [
        (False, True),
        (False, True),
        (True, False),
    ]


def test_two_threads_print_a_table_each() -> None:
    """Calls on different threads do not share state."""
    threads = [threading.Thread(target=down, args=(2,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [bool(re.search(r" 3 +@profile", table)) for table in tables()] == [True, True]


def test_a_second_call_begins_where_the_first_ended() -> None:
    """The first row of every table is what is in use at the call, not minus what came before."""
    for _ in range(2):
        down(3)
    first, second = (float(re.search(r"([\d.-]+) MiB +4 +@profile", t)[1]) for t in tables())  # type: ignore[index]
    assert first > 5
    assert second == pytest.approx(first, abs=2)


def test_gpu_columns_without_torch_say_why_they_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """`profile(gpu=True)` where torch is not installed runs the function, and prints the other columns."""
    monkeypatch.delitem(sys.modules, "memlens.measurement.lines.gpu_meter", raising=False)
    monkeypatch.setitem(sys.modules, "torch", None)
    text = io.StringIO()
    assert profile(stream=text, gpu=True)(lambda: 3)() == 3
    assert "GPU: n/a: torch is not installed." in text.getvalue()


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"precision": -1}, "precision=-1"),
        ({"precision": "2"}, "precision='2'"),
        ({"stream": "lines.txt"}, "stream='lines.txt'"),
        ({"backend": "posixx"}, "'posixx'"),
    ],
)
def test_what_cannot_be_printed_is_refused_at_once(wrong: dict[str, Any], said: str) -> None:
    """Where the decorator stands, not after the first call has run for an hour."""
    with pytest.raises(UsageError, match=said):
        profile(**wrong)
