"""nvidia-ml-py against a driver's library of our own: the calls are right, and every answer is understood."""

from __future__ import annotations

import ast
import inspect
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.driver import ask_driver, build_driver

from memlens.explanation.curves import curves
from memlens.records import load

pynvml = pytest.importorskip("pynvml")
SOURCE = Path(__file__).parents[2] / "src" / "memlens"
GPUS = (
    "from memlens.measurement.run import driver_processes as gpus; "
    "gpus.DRIVER_FILES = ('/',); g = gpus.Gpus(); "
)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_driver(tmp_path_factory.mktemp("driver"))


def calls() -> Iterator[tuple[str, ast.Call]]:
    """Every call of an nvml function in the package."""
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):  # noqa: SIM102
                if node.func.attr.startswith("nvml") and node.func.attr != "nvmlInitWithFlags":
                    yield node.func.attr, node


def test_every_call_fits_its_function() -> None:
    """The function is there, and takes these arguments by these names."""
    found = dict(calls())
    assert len(found) >= 10
    for name, call in calls():
        signature = inspect.signature(getattr(pynvml, name))
        signature.bind(*call.args, **{str(keyword.arg): None for keyword in call.keywords})


def test_memory_of_processes_is_read_and_added_up(driver: Path) -> None:
    """512 MiB on each of two cards; 5 GiB are in use on both together."""
    code = GPUS + "print(g.read(), g.reason, g.used_bytes() >> 30)"
    assert ask_driver(driver, code, MEMLENS_TEST_PID="77") == "{77: 1073741824} None 5"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("none", "the NVIDIA driver says: Driver Not Loaded"),
        ("denied", "the NVIDIA driver says: Insufficient Permissions"),
        ("hidden", "the driver hides memory per process here (WSL, WDDM or MIG)"),
        ("absurd", "the driver hides memory per process here (WSL, WDDM or MIG)"),
    ],
)
def test_what_the_driver_will_not_say_has_its_reason(driver: Path, answer: str, reason: str) -> None:
    """No driver, no permission, nothing but ones (WSL), more than the card has: no figure, and why."""
    assert ask_driver(driver, GPUS + "print(g.read(), g.reason)", answer) == f"{{}} {reason}"


def test_a_card_that_is_split_is_asked_part_by_part(driver: Path) -> None:
    """MIG: the whole card refuses, its two instances answer; each is shown on both cards here."""
    code = GPUS + "print(len(g.cards), g.read()[1] >> 20, g.reason)"
    assert ask_driver(driver, code, "split") == "2 2048 None"


def test_one_card_that_answers_is_enough(driver: Path) -> None:
    """The second card refuses; what the first says counts."""
    assert ask_driver(driver, GPUS + "print(g.read()[1] >> 20, g.reason)", "half") == "512 None"


def test_a_driver_older_than_the_bindings_has_its_reason(tmp_path: Path) -> None:
    """The function that lists processes is not in its library: said, and not a crash."""
    old = build_driver(tmp_path, "-DnvmlDeviceGetComputeRunningProcesses_v3=forgotten")
    said = ask_driver(old, GPUS + "print(g.read(), g.reason)")
    assert said.startswith("{} the NVIDIA driver is older than nvidia-ml-py")
    use = "from memlens.devices.usage import device_use as u; print(u(0))"
    assert "older than nvidia-ml-py" in ask_driver(old, use)


def test_the_cards_are_named_and_known(driver: Path) -> None:
    """Two H100s of compute capability 9.0, whose 80 GiB find them in the catalogue."""
    code = (
        "from memlens.devices.nvml import installed_gpus as f; found = f()\n"
        "print(found.driver, found.reason, [(c.memory_bytes >> 30, c.compute_capability, c.known.name)"
        " for c in found.cards])"
    )
    assert ask_driver(driver, code).startswith("550.54  [(80, (9, 0), 'NVIDIA H100 80GB")
    assert "Driver Not Loaded" in ask_driver(driver, code, "none")


@pytest.mark.parametrize(
    ("answer", "process", "reason"),
    [
        ("", 512 << 20, ""),
        ("hidden", None, "hides"),
        ("absurd", None, "hides"),
        ("denied", None, "Insufficient"),
    ],
)
def test_a_cards_use_and_our_share_of_it(driver: Path, answer: str, process: int | None, reason: str) -> None:
    """2 GiB are in use on the first card, 3 on the one of that UUID; ours where the driver says so."""
    code = (
        "import os, json; os.environ['MEMLENS_TEST_PID'] = str(os.getpid())\n"
        "from memlens.devices.usage import device_use as use\n"
        "one, two = use(0), use(0, 'two')\n"
        "print(json.dumps([one.used_bytes >> 30, two.used_bytes >> 30, one.process_bytes, one.reason]))"
    )
    *used, mine, why = json.loads(ask_driver(driver, code, answer))
    assert (used, mine) == ([2, 3], process)
    assert reason in why


def test_a_whole_run_under_that_driver(driver: Path, tmp_path: Path) -> None:
    """`memlens run` of a program of 0.8 s: its GPU memory is in the record, 1 GiB on both cards."""
    (tmp_path / "p.py").write_text("import time; time.sleep(1.2)\n")
    code = (
        "import os, sys\nfrom memlens.measurement.run import driver_processes, programs\n"
        "driver_processes.DRIVER_FILES = ('/',)\n"
        "class W(programs.Waiter):\n"
        "    def __init__(self, process):\n"
        "        os.environ['MEMLENS_TEST_PID'] = str(process.pid)\n        super().__init__(process)\n"
        "programs.Waiter = W\nfrom memlens.cli import main\n"
        f"os.chdir({str(tmp_path)!r})\nmain(['run', '-o', 'x.memlens', 'p.py'])\n"
    )
    ask_driver(driver, code)
    (curve,) = curves(load(tmp_path / "x.memlens"), "gpu")
    assert curve.peak_bytes == 1 << 30
    assert subprocess.run([sys.executable, "-m", "memlens", "peak", "x.memlens"], cwd=tmp_path, check=True)
