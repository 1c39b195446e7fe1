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
