"""What every test may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def shared() -> Path:
    """The recorded truths beside the checkout, or where $MEMLENS_SHARED says; skips without."""
    folder = Path(os.environ.get("MEMLENS_SHARED", REPOSITORY.parent / "shared"))
    if not (folder / "truth").is_dir():
        pytest.skip(f"no recorded truths at {folder}")
    return folder
