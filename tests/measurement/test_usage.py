"""memory_usage: memory_profiler's shapes; the function runs once; nobody else is touched."""

from __future__ import annotations

import io
import itertools
import mmap
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from memlens import memory_usage
from memlens.errors import UsageError
from memlens.units import MIB


def fresh(size: int) -> mmap.mmap:
    """`size` bytes from the system, touched: malloc would serve them from memory that it kept."""
    block = mmap.mmap(-1, size)
    block[::4096] = b"x" * -(-size // 4096)
    return block


def hold(size: int, seconds: float = 0.0) -> str:
    block = fresh(size)
    time.sleep(seconds)
    return f"{len(block)}"


def test_the_function_runs_exactly_once() -> None:
    """By default, with arguments, and however short it is."""
    calls: list[int] = []
    memory_usage((calls.append, (1,)))
    memory_usage(lambda: calls.append(2), interval=0.001, max_usage=True)
    memory_usage((calls.append, [3], {}), retval=True)
    assert calls == [1, 2, 3]


def test_the_shapes_that_memory_profiler_returns() -> None:
    """A list of MiB; pairs with timestamps; a float for max_usage; a pair with retval; lists per process."""
    call = (hold, (MIB, 0.05))
    plain = memory_usage(call, interval=0.01)
    assert len(plain) > 2
    assert all(isinstance(value, float) for value in plain)
    stamped = memory_usage(call, interval=0.01, timestamps=True)
    assert all(5 < mib < 10_000 and abs(when - time.time()) < 60 for mib, when in stamped)
    assert isinstance(memory_usage(call, max_usage=True), float)
    usage, value = memory_usage(call, retval=True)
    assert (type(usage), value) == (list, str(MIB))
    highest, value = memory_usage(call, retval=True, max_usage=True)
    assert (type(highest), value) == (float, str(MIB))
    assert [len(each) for each in memory_usage(-1, multiprocess=True)] == [1]
    assert len(memory_usage()) == len(memory_usage(os.getpid())) == 1
    assert len(memory_usage(-1, interval=0.01, timeout=0.05)) == 5
    assert len(memory_usage(-1, interval=0.001, max_iterations=3)) == 3


def test_a_short_allocation_between_two_samples_is_seen() -> None:
    """38 MiB that live for a few milliseconds, with a sample each 100 ms: the peak is there."""
    before = memory_usage(-1)[0]
    assert memory_usage((hold, (38 * MIB,)), max_usage=True) - before == pytest.approx(38, abs=1.5)
    assert max(memory_usage((hold, (38 * MIB,)))) - before == pytest.approx(38, abs=1.5)


def test_a_stream_gets_the_lines_that_mprof_writes() -> None:
    """`MEM mib time`, and None is returned."""
    out = io.StringIO()
    assert memory_usage(-1, interval=0.001, timeout=0.003, stream=out) is None
    lines = out.getvalue().splitlines()
    assert [line.split()[0] for line in lines] == ["MEM"] * 3
    assert all(len(line.split()[1].split(".")[1]) == 6 for line in lines)


@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
def test_what_the_function_raises_arrives_at_once_and_children_live(error: type[BaseException]) -> None:
    """No child is killed, no helper is left, nothing hangs."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(30)"])
    threads = threading.active_count()
    try:

        def fail() -> None:
            raise error("out")

        began = time.monotonic()
        with pytest.raises(error):
            memory_usage(fail, interval=5)
        assert time.monotonic() - began < 2
        assert child.poll() is None
        assert threading.active_count() == threads
    finally:
        child.kill()
        child.wait()


def test_no_process_is_started() -> None:
    """While the function runs, this process has no child, so none is counted as the program's."""

    def children() -> list[Any]:
        return psutil.Process().children(recursive=True)

    with_children = memory_usage(-1, include_children=True)[0]
    assert memory_usage(children, retval=True)[1] == []
    assert memory_usage(children, include_children=True, max_usage=True) < with_children + 5


def test_timeout_ends_the_sampling_and_never_the_function() -> None:
    """Two samples at most, and the function still returns."""
    usage, value = memory_usage((hold, (10, 0.2)), interval=0.02, timeout=0.05, retval=True)
    assert (len(usage) <= 3, value) == (True, "10")


def test_children_are_added_or_listed() -> None:
    """A process with one child: more with it than without, and one entry each."""
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(1)'])"
    program = subprocess.Popen([sys.executable, "-c", code])
    try:
        deadline = time.monotonic() + 10
        while not psutil.Process(program.pid).children() and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.1)
        alone = memory_usage(program.pid)[0]
        assert memory_usage(program.pid, include_children=True)[0] > alone + 1
        assert [len(each) for each in memory_usage(program.pid, multiprocess=True)] == [2]
        assert memory_usage(program, interval=0.05)  # until it ends
        assert program.poll() == 0
    finally:
        program.kill()
        program.wait()


def test_wrong_calls_say_what_is_right() -> None:
    """A process that is not there, something that is not a function, an interval of 0."""
    with pytest.raises(UsageError, match="there is no process 999999999"):
        memory_usage(999_999_999)
    with pytest.raises(UsageError, match="cannot measure"):
        memory_usage("sleep 1")
    with pytest.raises(UsageError, match="above 0 seconds"):
        memory_usage(-1, interval=0)
    with pytest.raises(UsageError, match="no memory backend 'nonsense'"):
        memory_usage(-1, backend="nonsense")


FLAGS = ("timestamps", "include_children", "multiprocess", "max_usage", "retval")
COMBINATIONS = [
    dict(zip(FLAGS, on, strict=True)) for on in itertools.product((False, True), repeat=len(FLAGS))
]


def is_sample(value: Any, timestamps: bool, multiprocess: bool) -> bool:
    """A float; with its time a pair; with other processes a list of which it is the first."""
    if multiprocess:
        return isinstance(value, list) and is_sample(value[0], timestamps, False)
    if timestamps:
        return isinstance(value, tuple) and [type(part) for part in value] == [float, float]
    return isinstance(value, float)


@pytest.mark.parametrize(
    "flags", COMBINATIONS, ids=lambda flags: "+".join(f for f in FLAGS if flags[f]) or "none"
)
@pytest.mark.parametrize("kind", ["function", "this process", "popen"])
def test_every_combination_of_flags_has_its_shape(flags: dict[str, bool], kind: str) -> None:
    """What comes back for each of 32 combinations; max_usage is one figure, also with other processes."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(0.3)"]) as program:
        proc = {"function": (hold, (1000,)), "this process": -1, "popen": program}[kind]
        found = memory_usage(proc, interval=0.02, max_iterations=3, **flags)
    if flags["retval"] and kind == "function":
        found, returned = found
        assert returned == "1000"
    if flags["max_usage"]:
        assert is_sample(found, flags["timestamps"], False)
    else:
        assert isinstance(found, list)
        assert 1 <= len(found) <= 3
        assert all(is_sample(value, flags["timestamps"], flags["multiprocess"]) for value in found)


@pytest.mark.parametrize(
    "flags", COMBINATIONS, ids=lambda flags: "+".join(f for f in FLAGS if flags[f]) or "none"
)
def test_a_stream_takes_everything(flags: dict[str, bool]) -> None:
    """With a stream nothing comes back, whatever else is asked for, and each sample is a line of mprof's."""
    out = io.StringIO()
    assert memory_usage((hold, (1000,)), interval=0.02, stream=out, max_iterations=2, **flags) is None
    assert {line.split()[0] for line in out.getvalue().splitlines()} <= {"MEM", "CHLD"}
    assert out.getvalue().startswith("MEM ")


def test_processes_that_end_while_they_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """psutil's races: the list of children fails, or one of them is gone, denied or unreadable by then."""

    def fails(*_: Any, **__: Any) -> Any:
        raise psutil.NoSuchProcess(1)

    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    monkeypatch.setattr(psutil.Process, "children", lambda self, recursive: [SimpleNamespace(pid=gone.pid)])
    assert [len(each) for each in memory_usage(-1, multiprocess=True)] == [1]
    monkeypatch.setattr(psutil.Process, "children", fails)
    assert [len(each) for each in memory_usage(-1, multiprocess=True)] == [1]
    for error in (psutil.AccessDenied(1), psutil.ZombieProcess(1), OSError("gone")):
        monkeypatch.setattr("memlens.measurement.host.own_process.psutil.Process.memory_info", _raiser(error))
        monkeypatch.setattr(
            psutil.Process, "children", lambda self, recursive: [SimpleNamespace(pid=os.getppid())]
        )
        assert [len(each) for each in memory_usage(-1, multiprocess=True)] == [1]


def _raiser(error: Exception) -> Any:
    def fails(*_: Any, **__: Any) -> Any:
        raise error

    return fails


def test_a_start_method_that_imports_main_again_changes_nothing() -> None:
    """Under forkserver and spawn a script without a main guard runs once: no helper imports it anew."""
    code = (
        "import multiprocessing\nprint('main', flush=True)\nmultiprocessing.set_start_method('{}')\n"
        "from memlens import memory_usage\nprint(memory_usage(lambda: 7, retval=True)[1])\n"
    )
    for method in ("spawn", "forkserver"):
        run = subprocess.run(
            [sys.executable, "-c", code.format(method)],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert run.stdout.split() == ["main", "7"], run.stderr
