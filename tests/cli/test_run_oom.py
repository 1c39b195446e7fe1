"""`memlens run` of a program that runs out of memory on its card."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

PROGRAM = """
import memlens
import torch
with memlens.simulate(memory_bytes=1 << 30, raise_oom=True):
    kept = [torch.empty(1 << 26, device="cuda") for _ in range(10)]
"""


@pytest.mark.parametrize("options", [[], ["--no-oom"]])
def test_the_error_is_explained_unless_told_not_to(tmp_path: Path, options: list[str]) -> None:
    """256 MiB more than the card has: the explanation comes before the traceback, with a record."""
    (tmp_path / "train.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "-m", "memlens", "run", "-q", *options, "train.py"],
        cwd=tmp_path, text=True, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "torch.OutOfMemoryError" in done.stderr
    explained = "256.00 MiB more was asked for at train.py:5" in done.stderr
    assert explained is (not options)
    assert len(list(tmp_path.glob("memlens_oom_*.pickle"))) == (0 if options else 1)
