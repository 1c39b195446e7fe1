"""An NVIDIA driver's library of our own, so that nvidia-ml-py itself is called without a card."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_suffix(".c")


def build_driver(folder: Path, *flags: str) -> Path:
    """Compile it; the folder is what LD_LIBRARY_PATH has to name. Skips where there is no C compiler."""
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("needs a C compiler on Linux")
    library = folder / "libnvidia-ml.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-w", *flags, "-o", library, SOURCE], check=True)
    return folder


def ask_driver(folder: Path, code: str, answer: str = "", **environment: str) -> str:
    """What Python code prints under that driver, which answers in the given way (see driver.c)."""
    known = {**os.environ, "LD_LIBRARY_PATH": str(folder), "MEMLENS_TEST_DRIVER": answer, **environment}
    done = subprocess.run(
        [sys.executable, "-c", code], env=known, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
