"""`memlens calibrate`, a simulated card standing in for a real one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

pytest.importorskip("torch")

import torch

import memlens
from memlens.cli.commands.calibrate import command
from memlens.devices.calibrated import calibration_file
from memlens.errors import UsageError
from memlens.units import MIB

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration directory of the test's own."""
    monkeypatch.setenv("MEMLENS_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path / "config"


def test_it_measures_keeps_and_shows(own_directory: Path) -> None:
    """The card is measured and kept; --show prints what is kept, --dry-run keeps nothing."""
    with memlens.simulate("T4"):
        CliRunner().invoke(command, ["--dry-run"], catch_exceptions=False)
        assert not calibration_file().exists()
        CliRunner().invoke(command, [], catch_exceptions=False)
    assert calibration_file().parent == own_directory
    shown = CliRunner().invoke(command, ["--show"], catch_exceptions=False).output
    assert "Tesla T4" in shown
    assert "8,519,680 B a handle" in shown
    data = json.loads(CliRunner().invoke(command, ["--show", "--json"], catch_exceptions=False).stdout)
    assert data["cards"]["Tesla T4"]["cublas_workspace_bytes"] == 8_519_680


def test_without_a_card() -> None:
    """There is nothing to calibrate, and the error says what predictions use meanwhile."""
    if torch.cuda.is_available():
        pytest.skip("this machine has a card")
    with pytest.raises(UsageError, match="none answers"):
        CliRunner().invoke(command, [], catch_exceptions=False)


def calibrate(*words: str) -> str:
    return CliRunner().invoke(command, words, catch_exceptions=False).output


def test_a_reading_of_an_idle_process() -> None:
    """One figure, from another machine: kept, shown, and used."""
    calibrate("--gpu", "T4", "--idle", "205MiB")
    assert "241.00 MiB expected" in calibrate("--show")
    found = memlens.predict(torch.nn.Linear(8, 8), inputs=["8"], gpu="T4")
    assert found.device.context_bytes[1] == 205 * MIB + 36 * MIB
    assert "MiB, read on this card on 20" in found.assumptions[0].what


def test_a_reading_while_a_program_runs(tmp_path: Path) -> None:
    """nvidia-smi's figure beside the predict command of what runs: the rest is the context."""
    (tmp_path / "net.py").write_text("import torch\ndef make(): return torch.nn.Linear(1024, 1024)\n")
    line = ["predict", f"{tmp_path / 'net.py'}:make", "--input", "1024", "--gpu", "T4"]
    plain = memlens.predict(torch.nn.Linear(1024, 1024), inputs=["1024"], gpu="T4")
    shown = plain.peak.reserved_bytes // MIB + 300
    text = calibrate("--shows", f"{shown}MiB", *line)
    assert "300.00 MiB expected" in text
    told = "".join(calibrate("--show").split())  # a long path is broken anywhere
    assert f"{shown}.00MiBwhile{tmp_path / 'net.py'}:makeran" in told
    assert "far from what is known" not in text
    assert "far from what is known" in calibrate("--dry-run", "--shows", "5GiB", *line)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("--idle 487MiB", "none is named"),
        ("--gpu T4", "there is no --idle"),
        ("--shows 2190MiB", "needs the program that ran"),
        ("predict net.py:make", "not what was shown"),
        ("--shows 2190MiB predict net.py:make", "names no card"),
        ("--show --gpu T4 --idle 1GiB", "three things"),
        ("--gpu T4 --idle 487", "487 bytes"),
    ],
)
def test_a_reading_that_lacks_something(words: str, says: str) -> None:
    """One sentence says what is missing, before anything is predicted or kept."""
    with pytest.raises(UsageError, match=says):
        calibrate(*words.split())
    assert not calibration_file().exists()
