"""`memlens run`: the program runs as it would without us, and a record is left."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memlens.explanation.curves import curves
from memlens.explanation.usage import usage
from memlens.model import Process, Trace
from memlens.records import load, native
from memlens.units import MIB


def memlens(folder: Path, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """Run the command line in a directory of its own."""
    return subprocess.run(
        [sys.executable, "-m", "memlens", *arguments],
        cwd=folder, text=True, capture_output=True, timeout=60, check=False, **options,
    )  # fmt: skip


def script(folder: Path, text: str, name: str = "script.py") -> str:
    (folder / name).write_text(text)
    return name


def the_record(folder: Path) -> Trace:
    (path,) = folder.glob("memlens_*.memlens")
    return load(path)


@pytest.mark.parametrize("code", [0, 3, 255])
def test_the_exit_code_passes_through(tmp_path: Path, code: int) -> None:
    """The program's exit code is ours, without an option."""
    assert memlens(tmp_path, "run", script(tmp_path, f"raise SystemExit({code})")).returncode == code


def test_a_program_ended_by_a_signal_gives_128_and_its_number(tmp_path: Path) -> None:
    """A kill -9 of the program is 137, as in a shell, and the record says -9."""
    assert memlens(tmp_path, "run", "sh", "-c", "kill -9 $$").returncode == 137
    assert the_record(tmp_path).metadata["exit_code"] == -9


def test_memory_of_the_program_and_its_child(tmp_path: Path) -> None:
    """60 MiB in the program and 40 in a child are seen where they are, with the child's name."""
    child = script(tmp_path, "import time\nx = bytearray(40 << 20)\ntime.sleep(0.4)\n", "worker.py")
    text = f"import subprocess, sys\nx = bytearray(60 << 20)\nsubprocess.run([sys.executable, {child!r}])\n"
    assert memlens(tmp_path, "run", script(tmp_path, text)).returncode == 0
    program, worker = curves(the_record(tmp_path))
    assert 60 * MIB < program.peak_bytes < 85 * MIB
    assert 40 * MIB < worker.peak_bytes < 60 * MIB
    assert worker.name.endswith("worker.py")
    assert worker.parent == program.pid


def test_classes_of_main_can_be_pickled(tmp_path: Path) -> None:
    """`__main__` is the script's own module: dataclasses and pickles of its classes work."""
    text = (
        "import pickle, sys\nfrom dataclasses import dataclass\n@dataclass\nclass A:\n    x: int = 1\n"
        "assert pickle.loads(pickle.dumps(A(3))) == A(3)\n"
        "assert sys.modules['__main__'].A is A and __name__ == '__main__'\n"
        "assert sys.argv == ['script.py', '--x', '1'], sys.argv\n"
        "import os; assert sys.path[0] == os.getcwd(), sys.path\n"
    )
    done = memlens(tmp_path, "run", script(tmp_path, text), "--x", "1")
    assert done.returncode == 0, done.stderr


def test_a_module_runs_as_python_would(tmp_path: Path) -> None:
    """-m gives the module its package, its spec and the current directory on the path."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").write_text("")
    (tmp_path / "pkg" / "other.py").write_text("X = 5\n")
    text = (
        "import sys\nfrom . import other\nassert other.X == 5 and __spec__.name == 'pkg.tool'\n"
        "assert sys.argv[1:] == ['--lines'] and sys.argv[0] == __file__\nraise SystemExit(4)\n"
    )
    (tmp_path / "pkg" / "tool.py").write_text(text)
    done = memlens(tmp_path, "run", "-m", "pkg.tool", "--lines")
    assert done.returncode == 4, done.stderr


def test_a_traceback_is_the_programs_own(tmp_path: Path) -> None:
    """An uncaught exception looks as it does without us, and gives exit code 1."""
    done = memlens(tmp_path, "run", "-q", script(tmp_path, "def f():\n    1 / 0\nf()\n"))
    bare = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, text=True, capture_output=True, check=False
    )
    assert done.returncode == bare.returncode == 1
    assert done.stderr == bare.stderr


def test_function_times_reach_the_record(tmp_path: Path) -> None:
    """`@profile` needs no import, keeps the function's name, and its call is a span with its growth."""
    text = (
        "@profile\ndef load(n):\n    'doc'\n    return bytearray(n)\n"
        "x = load(30 << 20)\nassert load.__name__ == 'load' and load.__wrapped__\n"
        "with profile.timestamp('block'):\n    pass\n"
    )
    done = memlens(tmp_path, "run", script(tmp_path, text))
    assert done.returncode == 0, done.stderr
    load_span, block = the_record(tmp_path).spans
    assert (load_span.name, block.name) == ("__main__.load", "block")
    assert 29 * MIB < load_span.end_bytes - load_span.start_bytes < 32 * MIB


def test_an_interpreter_in_front_is_used_as_it_is(tmp_path: Path) -> None:
    """`memlens run --python /path/to/python x.py` runs x.py once, in that interpreter."""
    text = "import sys\nprint(sys.executable, sys.flags.optimize)\n"
    done = memlens(tmp_path, "run", "--python", sys.executable, "-O", script(tmp_path, text))
    assert done.stdout.split() == [sys.executable, "1"]


def test_an_old_record_format_is_written_on_request(tmp_path: Path) -> None:
    """-o FILE.dat is mprof's format; Python's own memory is a figure like any other."""
    text = "import time\nx = [bytes(1000) for _ in range(20_000)]\ntime.sleep(0.2)\n"
    done = memlens(
        tmp_path, "run", "--backend", "tracemalloc", "-o", "x.dat", "-T", "0.02", script(tmp_path, text)
    )
    assert done.returncode == 0, done.stderr
    (curve,) = curves(load(tmp_path / "x.dat"))
    assert 19 * MIB < curve.peak_bytes < 24 * MIB


def test_a_record_is_not_overwritten(tmp_path: Path) -> None:
    """-o of a file that exists is an error before the program starts; --force is the way."""
    name = script(tmp_path, "open('ran', 'w')")
    (tmp_path / "x.memlens").write_text("mine")
    done = memlens(tmp_path, "run", "-o", "x.memlens", name)
    assert (done.returncode, (tmp_path / "ran").exists()) == (2, False)
    assert "--force" in done.stderr
    assert memlens(tmp_path, "run", "--force", "-o", "x.memlens", name).returncode == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["no-such-program"], "'no-such-program' was not found"),
        (["no-such.py"], "there is no script 'no-such.py'"),
        (["--linez", "x"], "has no option '--linez'"),
        (["--python-level", "true"], "not run as a Python script"),
        (["-T", "0", "true"], "an interval of 0.0 s"),
        (["-o", "no/such/x.memlens", "true"], "cannot write no/such/x.memlens"),
        (["-o", "x.png", "true"], "memlens plot run.memlens -o x.png"),
        (["-o", "x.html", "true"], "memlens report run.memlens -o x.html"),
        ([], "no program was named"),
    ],
)
def test_a_wrong_call_is_one_clear_line(tmp_path: Path, words: list[str], says: str) -> None:
    """What cannot be run is exit code 2 and a sentence, not a traceback; no record is left."""
    done = memlens(tmp_path, "run", *words)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_signals_go_to_the_program(tmp_path: Path, number: int) -> None:
    """A signal to memlens reaches the program, which decides; its own exit code comes back."""
    text = (
        "import signal, sys, time\n"
        f"signal.signal({int(number)}, lambda *_: sys.exit(42))\nprint('ready', flush=True)\ntime.sleep(30)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "memlens", "run", script(tmp_path, text)],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    assert process.stdout is not None
    with process.stdout:
        assert process.stdout.readline() == b"ready\n"
        process.send_signal(number)
        assert process.wait(20) == 42
    assert the_record(tmp_path).metadata["exit_code"] == 42


def test_a_killed_recorder_leaves_a_readable_record(tmp_path: Path) -> None:
    """kill -9 of memlens itself: the record is read up to that moment, and the program is not touched."""
    name = script(
        tmp_path, "import os, time\nwhile not os.path.exists('go'): time.sleep(0.02)\nopen('done', 'w')\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "memlens", "run", "-T", "0.02", "-o", "memlens_0.memlens", name], cwd=tmp_path
    )
    deadline = time.monotonic() + 30
    while not (grown := [p.stat().st_size for p in tmp_path.glob("*.memlens")]) or grown[0] < 1000:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.kill()
    process.wait()
    (tmp_path / "go").touch()
    trace = the_record(tmp_path)
    assert len(trace.events) > 5
    assert trace.assumptions[0].what == "the record ends early"
    while not (tmp_path / "done").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_json_is_the_last_line_of_output(tmp_path: Path) -> None:
    """--json gives the peaks in bytes, the exit code and the record's name; unknown figures are null."""
    done = memlens(tmp_path, "run", "--json", script(tmp_path, "x = bytearray(50 << 20)\nprint('hello')\n"))
    first, last = done.stdout.splitlines()
    found = json.loads(last)
    assert (first, found["exit_code"], found["schema"]) == ("hello", 0, "memlens.usage/1")
    assert found["program"]["peak_rss_bytes"] > 50 * MIB
    assert found["gpu_note"] or found["program"]["peak_gpu_bytes"]
    assert os.path.exists(tmp_path / found["record"])


def test_the_recorder_is_not_counted(tmp_path: Path) -> None:
    """A program without children is one process: what records it is its parent, and not in the record."""
    memlens(tmp_path, "run", "-C", script(tmp_path, "import time; time.sleep(0.3)"))
    assert len(the_record(tmp_path).processes) == 1


def test_marks_of_the_program_are_in_the_record(tmp_path: Path) -> None:
    """memlens.mark in the program, or in a child of it, puts a name on the timeline."""
    text = (
        "import memlens, subprocess, sys\nmemlens.mark('loaded')\n"
        "subprocess.run([sys.executable, '-c', 'import memlens; memlens.mark(\"child\")'])\n"
    )
    memlens(tmp_path, "run", script(tmp_path, text))
    trace = the_record(tmp_path)
    assert [mark.name for mark in trace.marks] == ["loaded", "child"]
    trace.check()


def test_lines_of_what_is_decorated(tmp_path: Path) -> None:
    """--lines prints the table of the decorated function only, and keeps it in the record; the function is
    the object that it was, and an exception does not lose the table."""
    text = (
        "import time\ndef other():\n    return 1\n@profile\ndef load():\n"
        "    x = bytearray(20 << 20)\n    other()\n    return x\n"
        "assert not hasattr(load, '__wrapped__')\nx = load()\n1 / 0\n"
    )
    done = memlens(tmp_path, "run", "--lines", script(tmp_path, text))
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert "Line #    Mem usage    Increment" in done.stdout
    (table,) = the_record(tmp_path).metadata["lines"]
    assert table["function"] == "load"
    growth = {row["line"]: row["increment_bytes"] for row in table["rows"]}
    assert 19.5 * MIB < growth[6] < 21 * MIB


@pytest.mark.parametrize("option", ["--lines", "--quiet"])
def test_a_profile_leaves_the_run_its_peak(tmp_path: Path, option: str) -> None:
    """60 MiB that came and went in a profiled line are in the run's peak, though the profile resets the
    system's mark: with --lines, and in a script that decorates for itself."""
    text = "from memlens import profile\n@profile\ndef load():\n    bytearray(60 << 20)\nload()\n"
    done = memlens(tmp_path, "run", "-T", "60", "--json", option, script(tmp_path, text))
    (curve,) = curves(the_record(tmp_path))
    told = json.loads(done.stdout.splitlines()[-1])["program"]["peak_rss_bytes"]
    assert told == curve.peak_bytes > 65 * MIB


def test_pythons_own_peak_is_told_from_inside(tmp_path: Path) -> None:
    """40 MB of Python objects between two readings are in the peak, which is tracemalloc's: no "at least"."""
    text = "import time\ndef work():\n    b'x' * 40_000_000\nwork()\ntime.sleep(0.3)\n"
    done = memlens(tmp_path, "run", "--python-level", script(tmp_path, text))
    (line,) = [line for line in done.stderr.splitlines() if "tracemalloc" in line]
    assert "at least" not in line
    (curve,) = curves(the_record(tmp_path), "python")
    assert 40_000_000 < curve.peak_bytes < 41_000_000


def test_a_program_too_short_for_a_sample_has_its_peak_everywhere(tmp_path: Path) -> None:
    """`memlens run` tells the system's own mark; `peak` and `compare` tell the same, `plot` says why not."""
    process = Process(7, "true", ended_us=20, peak_rss_bytes=30 * MIB)
    trace = Trace("measured", processes=[process], metadata={"figure": "rss"})
    native.save(trace, tmp_path / "short.memlens")
    assert usage(trace).program["rss"].bytes == 30 * MIB
    assert memlens(tmp_path, "peak", "short.memlens").stdout == "short.memlens\t30.000 MiB\n"
    assert "30.00" in memlens(tmp_path, "compare", "short.memlens", "short.memlens").stdout
    assert "before it could be sampled once" in memlens(tmp_path, "plot", "short.memlens").stderr


def test_a_module_that_is_not_there(tmp_path: Path) -> None:
    """Python's own one line, and not a traceback through our files."""
    done = memlens(tmp_path, "run", "-q", "-m", "nosuch.mod")
    bare = subprocess.run(
        [sys.executable, "-m", "nosuch.mod"], text=True, capture_output=True, cwd=tmp_path, check=False
    )
    assert (done.returncode, done.stderr) == (bare.returncode, bare.stderr)


def test_lines_of_a_whole_script(tmp_path: Path) -> None:
    """A script that decorates nothing is measured whole: its functions and its module level."""
    text = "def f():\n    return bytearray(20 << 20)\nx = f()\n"
    memlens(tmp_path, "run", "--lines", script(tmp_path, text))
    names = {table["function"] for table in the_record(tmp_path).metadata["lines"]}
    assert names == {"<module>", "f"}


def test_lines_survive_a_kill(tmp_path: Path) -> None:
    """A program that is killed loses at most the last two seconds of its tables."""
    text = (
        "import os, time\n@profile\ndef f():\n    x = bytearray(20 << 20)\n    time.sleep(2.5)\n"
        "    os.kill(os.getpid(), 9)\nf()\n"
    )
    assert memlens(tmp_path, "run", "--lines", script(tmp_path, text)).returncode == 137
    (table,) = the_record(tmp_path).metadata["lines"]
    assert {row["line"]: row["occurrences"] for row in table["rows"]}[4] == 1


def test_exact_owners_of_the_peak(tmp_path: Path) -> None:
    """--exact: every allocation is in the record, and the line that holds most of the peak comes first."""
    pytest.importorskip("memray")
    text = "def f():\n    return bytearray(30 << 20)\nkept = f()\nf()\n"
    done = memlens(tmp_path, "run", "--exact", script(tmp_path, text))
    assert done.returncode == 0, done.stderr
    trace = the_record(tmp_path)
    trace.check()
    peak = trace.breakdown()
    assert peak.allocated_bytes == trace.metadata["peak_allocated_bytes"]
    assert 60 * MIB < peak.allocated_bytes < 62 * MIB
    where, size = next(iter(peak.by_line().items()))
    assert (Path(where).name, size // MIB) == ("script.py:2", 60)
    assert "held at the peak of 60." in done.stderr


def test_lines_and_exact_do_not_go_together(tmp_path: Path) -> None:
    """Two measurements that would measure each other are refused."""
    done = memlens(tmp_path, "run", "--lines", "--exact", script(tmp_path, ""))
    assert (done.returncode, "would measure each other" in done.stderr) == (2, True)


def test_a_generator_and_a_coroutine_are_timed(tmp_path: Path) -> None:
    """`@profile` without --lines keeps what a function is, and times its whole life."""
    text = (
        "import asyncio, inspect\n@profile\ndef g():\n    got = yield 1\n    return got\n"
        "@profile\nasync def c():\n    await asyncio.sleep(0.05)\n    return 7\n"
        "@profile\nasync def a():\n    yield 3\n"
        "class K:\n    @profile\n    @classmethod\n    def m(cls):\n        return cls\n"
        "assert inspect.isgeneratorfunction(g) and inspect.iscoroutinefunction(c)\n"
        "assert inspect.isasyncgenfunction(a) and K.m() is K\n"
        "it = g(); next(it)\ntry: it.send(5)\nexcept StopIteration as stop: assert stop.value == 5\n"
        "async def main():\n    assert await c() == 7\n    assert [x async for x in a()] == [3]\n"
        "asyncio.run(main())\n"
    )
    done = memlens(tmp_path, "run", script(tmp_path, text))
    assert done.returncode == 0, done.stderr
    spans = {span.name: span for span in the_record(tmp_path).spans}
    assert sorted(spans) == ["__main__.K.m", "__main__.a", "__main__.c", "__main__.g"]
    assert spans["__main__.c"].ended_us - spans["__main__.c"].started_us >= 50_000


def test_an_exception_in_a_timed_function_keeps_its_span(tmp_path: Path) -> None:
    """The call that fails is on the timeline like any other."""
    memlens(tmp_path, "run", script(tmp_path, "@profile\ndef f():\n    1 / 0\nf()\n"))
    assert [span.name for span in the_record(tmp_path).spans] == ["__main__.f"]


def test_multiprocessing_works_inside(tmp_path: Path) -> None:
    """Workers of a pool find the script's own classes, with fork and with spawn."""
    text = (
        "import multiprocessing as mp\nclass A:\n    x = 3\ndef f(a):\n    return a.x\n"
        "if __name__ == '__main__':\n    for method in ('fork', 'spawn'):\n"
        "        with mp.get_context(method).Pool(2) as pool:\n"
        "            assert pool.map(f, [A(), A()]) == [3, 3]\n"
    )
    done = memlens(tmp_path, "run", script(tmp_path, text))
    assert done.returncode == 0, done.stderr


def test_the_live_view_needs_a_terminal(tmp_path: Path) -> None:
    """Into a pipe there is nothing to draw on: said before the program starts."""
    done = memlens(tmp_path, "run", "--live", script(tmp_path, "open('ran', 'w')"))
    assert (done.returncode, (tmp_path / "ran").exists()) == (2, False)
    assert "--live needs a terminal" in done.stderr


def in_a_terminal(folder: Path, *words: str, type_in: bytes = b"", after: bytes = b"") -> tuple[int, bytes]:
    """Run the command line in a terminal of its own, typing something once `after` is on the screen."""
    pty = pytest.importorskip("pty")
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
        os.execve(sys.executable, [sys.executable, "-m", "memlens", *words], environment)
    shown = b""
    with open(terminal, "r+b", buffering=0) as file:
        try:
            while data := file.read(65536):
                shown += data
                if type_in and after in shown:
                    file.write(type_in)
                    type_in = b""
        except OSError:
            pass  # the other end is closed
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), shown


def test_the_live_view_in_a_terminal(tmp_path: Path) -> None:
    """In a terminal the display is drawn, the program's lines stay whole, its exit code comes back."""
    text = (
        "import os, sys, time\nwidth = os.get_terminal_size().columns\n"
        "print('hello', sys.stdout.isatty(), width, flush=True)\ntime.sleep(0.8)\nsys.exit(3)\n"
    )
    code, shown = in_a_terminal(tmp_path, "run", "--live", script(tmp_path, text))
    assert code == 3
    assert b"hello True 100" in shown
    assert "┤".encode() in shown


def test_ctrl_c_in_a_terminal_reaches_the_program_once(tmp_path: Path) -> None:
    """The terminal gives Ctrl-C to the program itself; we do not pass it on again, and wait for its end."""
    text = (
        "import signal, sys, time\ncount = 0\ndef hit(*_):\n    global count; count += 1\n"
        "signal.signal(signal.SIGINT, hit)\nprint('ready', flush=True)\n"
        "end = time.monotonic() + 0.6\nwhile time.monotonic() < end: time.sleep(0.05)\nsys.exit(20 + count)\n"
    )
    code, shown = in_a_terminal(tmp_path, "run", script(tmp_path, text), type_in=b"\x03", after=b"ready")
    assert (code, b"exit code 21" in shown) == (21, True)
    assert the_record(tmp_path).metadata["exit_code"] == 21


def test_the_peak_of_a_child_is_not_the_programs(tmp_path: Path) -> None:
    """A shell whose child held 300 MiB held little itself; the system's count names no process.

    The child holds 300 MiB more than this test's process did: the kernel counts that for a forked program.
    """
    size = 300 * MIB + resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    child = script(tmp_path, f"x = bytearray({size})\n", "child.py")
    memlens(tmp_path, "run", "-q", "sh", "-c", f"{sys.executable} {child}; sleep 2")
    trace = the_record(tmp_path)
    assert curves(trace)[0].peak_bytes < 20 * MIB
    assert trace.metadata["largest_process_bytes"] > size


def test_a_script_has_the_names_that_python_gives_it(tmp_path: Path) -> None:
    """Nothing of ours is in the globals of a script, and one name, `profile`, in builtins."""
    text = (
        "names = sorted(globals())\nimport builtins, sys, json\n"
        "print(json.dumps([names, sorted(set(vars(builtins))), sys.argv, __spec__ is None]))\n"
    )
    name = script(tmp_path, text)
    bare = json.loads(subprocess.check_output([sys.executable, name, "x"], cwd=tmp_path, text=True))
    ours = json.loads(memlens(tmp_path, "run", "-q", name, "x").stdout)
    assert ours[1].pop(ours[1].index("profile")) == "profile"
    assert set(bare[0]) == set(ours[0])
    assert bare[1:3] == ours[1:3]
