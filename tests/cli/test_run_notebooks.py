"""`memlens run` with a notebook: it runs for real, cell after cell, and its lines have its names."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("nbformat")
pytest.importorskip("IPython")

from tests.support.notebooks import write_notebook

from memlens.records import load

CELLS = (
    "!echo from a shell\n%matplotlib inline\nimport sys\nprint(sys.argv[1:], __name__)",
    "%%time\ntext = 'x' * 50_000_000\nhalf = text[25_000_000:]",
    "def shout(text):\n    return text.upper()\nlen(shout(text))",
    "%time more = 'y' * 10_000_000\nprint(_)",
)


def run(*words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "memlens", "run", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("notebook")
    write_notebook(folder / "a.ipynb", *CELLS)
    return folder


def test_each_cell_has_a_table(folder: Path) -> None:
    """Its lines as they were typed, one table for all its statements, and one for each function."""
    done = run("--lines", "-q", "-o", str(folder / "a.memlens"), str(folder / "a.ipynb"), "--fast")
    assert done.returncode == 0
    assert "from a shell" in done.stdout
    assert "['--fast'] __main__" in done.stdout
    titles = [line for line in done.stdout.splitlines() if line.startswith("Filename:")]
    assert titles == [f"Filename: {folder}/a.ipynb, cell {number}" for number in (1, 2, 3, 3, 4)]
    second = done.stdout.split("cell 2\n")[1].split("Filename")[0]
    rows = {line.split()[0]: line for line in second.splitlines() if "MiB" in line}
    assert set(rows) == {"2", "3"}
    assert float(rows["2"].split()[3]) == pytest.approx(50_000_000 / 2**20, abs=1)
    assert "%time more = 'y' * 10_000_000" in done.stdout
    assert "ipython-input" not in done.stdout


def test_every_allocation_knows_its_cell(folder: Path) -> None:
    """memray's stacks, too."""
    pytest.importorskip("memray")
    path = folder / "exact.memlens"
    assert run("--exact", "-q", "-o", str(path), str(folder / "a.ipynb")).returncode == 0
    largest = max(load(path).breakdown().live, key=lambda alloc: alloc.bytes)
    assert largest.site.where == f"{folder}/a.ipynb, cell 2, line 2"


def test_an_error_is_shown_as_the_cell_has_it(tmp_path: Path) -> None:
    """The line of the cell and no frame of IPython's or ours; the exit code is Python's."""
    path = write_notebook(
        tmp_path / "e.ipynb", "def half(x):\n    return x / 0", "a = 1\nhalf(a)", "print('never')"
    )
    done = run("-q", "-o", str(tmp_path / "e.memlens"), path)
    assert done.returncode == 1
    assert done.stdout == ""
    first, *frames = [line for line in done.stderr.splitlines() if line.startswith(("Traceback", "  File"))]
    assert first == "Traceback (most recent call last):"
    assert frames == [
        f'  File "{path}, cell 2", line 2, in <module>', f'  File "{path}, cell 1", line 2, in half'
    ]  # fmt: skip
    assert "    return x / 0" in done.stderr


def test_what_is_no_notebook_is_refused_before_it_runs(tmp_path: Path) -> None:
    """One line and exit code 2, as for every call that is wrong."""
    (tmp_path / "bad.ipynb").write_text(json.dumps({"a": 1}))
    for name, says in {
        "bad.ipynb": "cannot be read as a notebook",
        "absent.ipynb": "there is no notebook",
    }.items():
        done = run(str(tmp_path / name))
        assert done.returncode == 2
        assert says in done.stderr
        assert "Traceback" not in done.stderr
