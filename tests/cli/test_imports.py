"""Commands that read and list start at once: what takes seconds to import is loaded where it is needed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.desk import lay_out

HEAVY = ("torch", "matplotlib", "IPython", "numpy", "memray", "pandas", "transformers", "jinja2")
ASK = """
import atexit, json, sys
from pathlib import Path
heavy, out, *words = sys.argv[1:]
atexit.register(lambda: Path(out).write_text(json.dumps([n for n in heavy.split(",") if n in sys.modules])))
sys.argv = ["memlens", *words]
from memlens.cli import main
main()
"""
LIGHT = (
    ["--help"],
    ["--version"],
    ["gpus", "4090"],
    ["snapshot", "snapshot.pickle", "--replay"],
    ["compare", "before.memlens", "snapshot.pickle"],
    ["plot", "0"],
    ["plot", "predicted.memlens"],
    ["peak", "0", "1", "predicted.memlens"],
    ["list"],
    ["clean", "--dry-run"],
    ["predict", "--help"],
    ["summary", "--help"],
    ["run", "true"],
)


def loaded(folder: Path, program: str, words: list[str], heavy: tuple[str, ...]) -> list[str]:
    """Which of `heavy` a command had imported when it ended."""
    out = folder / "loaded.json"
    done = subprocess.run(
        [sys.executable, "-c", program, ",".join(heavy), str(out), *words],
        cwd=folder, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(out.read_text())
    return found


@pytest.mark.parametrize("words", LIGHT, ids=" ".join)
def test_a_light_command_loads_nothing_heavy(words: list[str], tmp_path: Path) -> None:
    """`import torch` alone costs seconds: none of these pays for it, nor for matplotlib or IPython."""
    lay_out(tmp_path, ["memlens", *words])
    assert loaded(tmp_path, ASK, words, HEAVY) == []


def test_a_page_loads_its_own_libraries_only(tmp_path: Path) -> None:
    """`memlens report` needs jinja2, and neither torch, numpy nor matplotlib."""
    words = ["report", "snapshot.pickle"]
    lay_out(tmp_path, ["memlens", *words])
    assert set(loaded(tmp_path, ASK, words, HEAVY)) == {"jinja2"}


def test_import_memlens_loads_nothing_else() -> None:
    """The public names are there at once; torch, rich and even `typing` come when a name is used."""
    program = (
        "import sys\nbefore = set(sys.modules)\nimport memlens\nassert 'predict' in dir(memlens)\n"
        "print(*sorted(set(sys.modules) - before - {'__future__'}))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["memlens"]


def test_a_heavy_import_is_found(tmp_path: Path) -> None:
    """The check, broken once on purpose."""
    assert loaded(tmp_path, ASK.replace("main()", "import psutil; main()"), ["--help"], ("psutil",)) == [
        "psutil"
    ]


def test_a_command_that_needs_torch_says_so(tmp_path: Path) -> None:
    """Without torch, `memlens summary` is one line that names the extra, and exit code 2."""
    (tmp_path / "net.py").write_text("def make(): ...\n")
    blocked = (
        "import sys\nsys.modules['torch'] = None\nfrom memlens.cli import main\n"
        "main(['summary', 'net.py:make', '--input', '4'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", blocked], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "needs torch, which is not installed" in done.stderr
    assert "memlens[torch]" in done.stderr
    assert "Traceback" not in done.stderr
