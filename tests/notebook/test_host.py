"""%memit and %mprun, in a real IPython shell without setuptools."""

from __future__ import annotations

import linecache
import mmap
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("IPython")

CLASSIC = re.compile(r"peak memory: \d+\.\d\d MiB, increment: -?\d+\.\d\d MiB\n")


def fresh(size: int) -> mmap.mmap:
    """`size` bytes from the system, touched: malloc would serve them from memory that it kept."""
    block = mmap.mmap(-1, size)
    block[::4096] = b"x" * -(-size // 4096)
    return block


@pytest.fixture
def shell(shell: Any) -> Any:
    shell.user_ns["fresh"] = fresh
    return shell


def run(shell: Any, code: str) -> Any:
    outcome = shell.run_cell(code)
    outcome.raise_error()
    return outcome.result


def test_memit_prints_the_classic_line(shell: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """Loaded with %load_ext on IPython 9 without setuptools, and what the statement assigns stays."""
    run(shell, "%memit x = 10 + 5")
    assert CLASSIC.fullmatch(capsys.readouterr().out)
    assert shell.user_ns["x"] == 15


def test_memit_runs_the_statement_once_and_its_setup_before(shell: Any) -> None:
    """%%memit: the first line is not measured; -o returns, -q is silent, -r repeats."""
    run(shell, "calls = []")
    result = run(shell, "%%memit -o -q block = fresh(50 << 20)\ncalls.append(len(block))")
    assert shell.user_ns["calls"] == [50 << 20]
    assert max(result.mem_usage) - result.baseline < 5
    result = run(shell, "%memit -r 3 -o -q calls.append(1)")
    assert (len(shell.user_ns["calls"]), len(result.mem_usage), result.repeat) == (4, 3, 3)
    assert "peak memory" in result._repr_html_()


def test_memit_sees_a_short_peak_and_says_the_same_each_time(shell: Any) -> None:
    """A list of 10^6 objects three times: what Python held at its peak is the same, re-used or not."""
    results = [run(shell, "%memit -p -o -q [object() for _ in range(10**6)]") for _ in range(3)]
    peaks = [result.python_peaks[0] for result in results]
    assert max(peaks) - min(peaks) < 0.1
    assert peaks[0] == pytest.approx((10**6 * 16 + 8_448_728) / 2**20, abs=0.6)  # objects and the list
    blocks = [run(shell, "%memit -o -q fresh(100 << 20)") for _ in range(3)]
    assert [max(b.mem_usage) - b.baseline for b in blocks] == pytest.approx([100] * 3, abs=2)


def test_children_are_counted_and_no_monitor_is(shell: Any) -> None:
    """-c with no child adds nothing: no helper process is among the children."""
    result = run(shell, "%memit -c -o -q pass")
    assert max(result.mem_usage) - result.baseline < 5


def test_mprun_profiles_a_function_that_was_defined_in_a_cell(
    shell: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its source is in the table, as text and as HTML, and -T writes it to a file."""
    run(shell, "def f(n):\n    block = fresh(n)\n    return len(block)")
    file = tmp_path / "out.txt"
    profiler = run(shell, f"%mprun -r -T {file} -f f f(40 << 20)")
    assert "block = fresh(n)" in file.read_text()
    (table,) = profiler.tables()
    assert table.body[0].peak_bytes == pytest.approx(40 << 20, abs=1 << 20)
    assert "Line Contents" in capsys.readouterr().out

    from memlens.notebook.host import LineReport

    page = LineReport(profiler)._repr_html_()
    assert "<table>" in page
    assert "block = fresh(n)" in page


def test_mprun_of_a_cell_and_several_functions(shell: Any) -> None:
    """%%mprun runs the cell; each -f has its table."""
    run(shell, "def f():\n    return g()\ndef g():\n    return 1")
    profiler = run(shell, "%%mprun -r -f f -f g\nfor _ in range(3):\n    f()")
    assert [(table.function, table.calls) for table in profiler.tables()] == [("f", 3), ("g", 3)]


def test_mprun_counts_children_and_keeps_to_the_classic_columns(
    shell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """-c: a child of 60 MiB is in the line that runs it. --classic has no Peak column."""
    run(shell, "import subprocess, sys, time")
    run(shell, "code = 'import time; x = bytearray(60 << 20); time.sleep(0.3)'")
    run(shell, "def f():\n    subprocess.run([sys.executable, '-c', code])")
    profiler = run(shell, "%mprun -r -c -f f f()")
    assert profiler.tables()[0].body[0].peak_bytes > 60 << 20
    assert "Peak (>=)" in capsys.readouterr().out
    run(shell, "%mprun --classic -f f f()")
    assert "Occurrences   Line Contents" in capsys.readouterr().out


def test_an_async_function_from_a_cell(shell: Any) -> None:
    """Driven by asyncio.run within the measured statement."""
    run(shell, "import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    return 1")
    profiler = run(shell, "%mprun -r -f f asyncio.run(f())")
    assert profiler.tables()[0].body[0].source.strip() == "await asyncio.sleep(0)"


def test_a_failing_statement_fails_and_still_shows_its_table(
    shell: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error reaches the cell; the lines up to it are shown."""
    run(shell, "def f():\n    return 1 / 0")
    with pytest.raises(ZeroDivisionError):
        run(shell, "%mprun -f f f()")
    assert "return 1 / 0" in capsys.readouterr().out


@pytest.mark.parametrize("line", ["%mprun f()", "%mprun -f nowhere 1", "%memit -r many 1"])
def test_wrong_options_are_one_line(shell: Any, line: str) -> None:
    """A usage error of IPython's, which prints without a traceback."""
    from IPython.core.error import UsageError

    with pytest.raises(UsageError):
        run(shell, line)


def test_the_extension_loads_where_neither_setuptools_nor_distutils_is(tmp_path: Path) -> None:
    """A clean environment of Python 3.12 and newer: %load_ext, %memit and %mprun all work."""
    code = (
        "import sys\nsys.modules.update(setuptools=None, distutils=None)\n"
        "from IPython.core.interactiveshell import InteractiveShell\n"
        "shell = InteractiveShell.instance()\n"
        "for cell in ('%load_ext memlens', '%memit 1 + 1', 'def f(): return 1', '%mprun -f f f()'):\n"
        "    shell.run_cell(cell).raise_error()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "IPYTHONDIR": str(tmp_path)},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert CLASSIC.search(done.stdout)
    assert "def f(): return 1" in done.stdout


def test_a_cell_of_ipykernel_is_profiled(shell: Any) -> None:
    """ipykernel names each cell like a file in the temporary directory: linecache has its text."""
    source = "def f(n):\n    block = fresh(n)\n    return len(block)\n"
    name = "/tmp/ipykernel_4711/1234567890.py"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    exec(compile(source, name, "exec"), shell.user_ns)
    (table,) = run(shell, "%mprun -r -f f f(30 << 20)").tables()
    assert [row.source.strip() for row in table.body] == ["block = fresh(n)", "return len(block)"]


def test_the_same_statement_four_times_has_the_same_peak(shell: Any) -> None:
    """memory_profiler shows 0 from the second time on, as malloc serves what it kept."""
    results = [run(shell, "%memit -o -q fresh(100 << 20)") for _ in range(4)]
    assert [max(r.mem_usage) - r.baseline for r in results] == pytest.approx([100] * 4, abs=2)
    listed = [run(shell, "%memit -p -o -q [i for i in range(10**6)]").python_peaks[0] for _ in range(3)]
    assert max(listed) - min(listed) < 0.1
