"""`memlens clean`: removes the records of a directory and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.record_folder import SECOND, type_in

pytestmark = pytest.mark.usefixtures("folder")


def test_clean_removes_records_and_nothing_else(folder: Path) -> None:
    """Default names only: what somebody named themselves is theirs."""
    (folder / "mine.memlens").write_bytes((folder / SECOND).read_bytes())
    assert type_in("clean", "--dry-run").output.count("would remove") == 2
    type_in("clean")
    assert sorted(path.name for path in folder.iterdir()) == ["mine.memlens", "notes.txt"]
