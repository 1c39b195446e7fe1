"""`memlens peak`: the highest memory of records, printed as mprof does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.record_folder import FIRST, SECOND, type_in

from memlens.errors import MemlensError
from memlens.units import MIB

pytestmark = pytest.mark.usefixtures("folder")


def test_peak_prints_as_mprof_does() -> None:
    """A line for the record and one for each child, with tabs where mprof has them; three decimals."""
    assert type_in("peak", "0").output == f"{FIRST}\t28.941 MiB\n  Child 4712\t\t\t47.602 MiB\n"


def test_peak_takes_the_newest_by_default() -> None:
    """Without a name it is the newest, and the peak is the system's own mark."""
    assert type_in("peak").output == type_in("peak", "-1").output == f"{SECOND}\t33.000 MiB\n"


def test_peak_while_a_function_ran() -> None:
    """f ran while 5 MiB were sampled and held 6 at its end; the 33 before it do not count."""
    assert type_in("peak", "--func", "f").output == f"{SECOND}\t6.000 MiB\n"
    assert type_in("peak", "--func", "__main__.load", "0").output.startswith(f"{FIRST}\t28.941 MiB\n")
    error = type_in("peak", "--func", "g").exception
    assert isinstance(error, MemlensError)
    assert error.hint == "functions in it: __main__.f"


def test_peak_as_json_is_in_bytes() -> None:
    """Bytes, pids and names."""
    (row,) = json.loads(type_in("peak", "--json").output)["records"]
    assert row == {"file": SECOND, "processes": [{"pid": 7, "name": "new.py", "peak_bytes": 33 * MIB}]}


@pytest.mark.usefixtures("allocations")
def test_peak_of_allocations() -> None:
    """Allocated on the record's line, then reserved, and of a prediction the process; bytes in JSON."""
    assert type_in("peak", "predicted.memlens", "snapshot.pickle").output.splitlines() == [
        "predicted.memlens\t36.000 MiB", "  reserved\t\t\t40.000 MiB", "  process\t\t\t42.000 MiB",
        "snapshot.pickle\t32.000 MiB", "  reserved\t\t\t44.000 MiB",
    ]  # fmt: skip
    (row,) = json.loads(type_in("peak", "--json", "predicted.memlens").output)["records"]
    assert row == {
        "file": "predicted.memlens",
        "processes": [],
        "peak_allocated_bytes": 36 * MIB,
        "peak_reserved_bytes": 40 * MIB,
        "peak_process_bytes": 42 * MIB,
    }
    error = type_in("peak", "--func", "f", "predicted.memlens").exception
    assert "records allocations, no calls of functions" in str(error)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["peak", "-3"], "there is no record -3"),
        (["peak", "--josn"], "there is no option --josn"),
    ],
)
def test_a_wrong_call_is_one_error(folder: Path, words: list[str], says: str) -> None:
    """A number that is not there, an option that does not exist."""
    done = type_in(*words)
    assert isinstance(done.exception, MemlensError)
    assert says in str(done.exception)
    assert len(list(folder.iterdir())) == 3
