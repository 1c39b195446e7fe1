"""%mlrun in a real IPython shell, on a card that is not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("IPython")
pytest.importorskip("torch")

import memlens

pytestmark = pytest.mark.torch


CELL = """
import torch
def work():
    kept = torch.empty(1 << 20, device="cuda")
    return kept.sum()
"""


def test_a_function_of_a_cell(shell: Any, tmp_path: Path) -> None:
    """A function that was defined in a cell is measured, and -T writes its table."""
    shell.run_cell(CELL).raise_error()
    table = tmp_path / "table.txt"
    with memlens.simulate("T4"):
        shell.run_cell(f"%mlrun -f work -c allocated_bytes.all.peak -q -T {table} work()").raise_error()
    line = next(line for line in table.read_text().splitlines() if "kept = " in line)
    assert "4.00 MiB" in line


def test_no_function_is_an_error(shell: Any) -> None:
    """`%mlrun` without -f says what it needs."""
    outcome = shell.run_cell("%mlrun 1 + 1")
    assert "needs a function to watch" in str(outcome.error_in_exec)
