"""`memlens list`: the records of a directory, numbered; and the names that new ones get."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from tests.support.record_folder import FIRST, SECOND, type_in

from memlens.records.folder import free_name, records

pytestmark = pytest.mark.usefixtures("folder")


def test_list_numbers_records_oldest_first() -> None:
    """mprof's line: number, name, time, date."""
    assert type_in("list").output.splitlines() == [
        f"0 {FIRST} 23:59:59 31/12/2025",
        f"1 {SECOND} 12:00:00 31/01/2026",
    ]
    rows = json.loads(type_in("list", "--json").output)["records"]
    assert [row["file"] for row in rows] == [FIRST, SECOND]


def test_a_second_run_in_the_same_second_has_a_name_of_its_own(folder: Path) -> None:
    """`memlens_STAMP.memlens`, then `_1`, `_2`: nothing is overwritten or refused, and all are listed."""
    now = time.struct_time((2026, 1, 31, 12, 0, 0, 5, 31, 0))  # the time of the record that is there
    for ending in ("_1", "_2"):
        path = free_name(folder, now)
        assert path.name == f"memlens_20260131120000{ending}.memlens"
        path.write_text("")
    assert [path.name for path in records(folder)][:2] == [FIRST, SECOND]
    assert len(records(folder)) == 4
