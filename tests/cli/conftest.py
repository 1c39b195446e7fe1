"""What the tests of several commands start from."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.desk import placed
from tests.support.predictions import prediction
from tests.support.record_folder import put_records

from memlens.explanation.prediction_record import remember
from memlens.records import native
from memlens.records.snapshot_writer import dumps


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: an old record of mprof's, a newer one of ours, and a file that is none."""
    put_records(tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def allocations(folder: Path) -> None:
    """A prediction of 36 MiB allocated, 40 reserved, 42 of the process; a snapshot of 32 and 44."""
    native.save(remember(prediction()).trace, folder / "predicted.memlens")
    (folder / "snapshot.pickle").write_bytes(dumps(placed()))
