"""`memlens list`, `peak`, `plot`, `rm`, `clean`: what lies in a directory, and what mprof's users type."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.support.desk import placed
from tests.support.predictions import prediction

from memlens.cli.main import cli
from memlens.errors import MemlensError
from memlens.explanation.prediction_record import remember
from memlens.model import Process, Sample, Span, Trace
from memlens.records import native
from memlens.records.folder import free_name, records
from memlens.records.snapshot_writer import dumps
from memlens.units import MIB

OLD = """\
CMDLINE python old.py
MEM 10.000000 1700000000.0000
FUNC __main__.load 10.0000 1700000000.0000 28.9410 1700000000.1000 0
MEM 28.941000 1700000000.1000
CHLD 4712 47.602000 1700000000.1000
MEM 12.000000 1700000000.2000
"""
FIRST, SECOND = "mprofile_20251231235959.dat", "memlens_20260131120000.memlens"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An old record of mprof's, a newer one of ours, and a file that is none."""
    (tmp_path / FIRST).write_text(OLD)
    trace = Trace("measured", [Sample(1_000_000, 7, 30 * MIB), Sample(2_000_000, 7, 5 * MIB)])
    trace.processes = [Process(7, "new.py", None, 1_000_000, 3_000_000, peak_rss_bytes=33 * MIB)]
    trace.metadata = {"command": "new.py", "figure": "rss"}
    trace.spans = [Span("__main__.f", 1_500_000, 2_500_000, 4 * MIB, 6 * MIB, 0, 7)]
    native.save(trace, tmp_path / SECOND)
    (tmp_path / "notes.txt").write_text("mine\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def type_in(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


def test_list_numbers_records_oldest_first() -> None:
    """mprof's line: number, name, time, date."""
    assert type_in("list").output.splitlines() == [
        f"0 {FIRST} 23:59:59 31/12/2025",
        f"1 {SECOND} 12:00:00 31/01/2026",
    ]
    rows = json.loads(type_in("list", "--json").output)["records"]
    assert [row["file"] for row in rows] == [FIRST, SECOND]


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


@pytest.mark.parametrize(
    "words", [["plot", "0"], ["plot", FIRST, "--width", "80"], ["plot", "-t", "title", "-1"]]
)
def test_plot_draws_in_the_terminal(words: list[str]) -> None:
    """A record by number, by name, or the newest; old and new formats alike."""
    done = type_in(*words)
    assert done.exit_code == 0
    assert "└──" in done.output
    assert "resident memory (RSS)" in done.output


def test_plot_leaves_functions_out_on_request() -> None:
    """-n is mprof's."""
    assert "__main__.f" in type_in("plot").output
    assert "__main__.f" not in type_in("plot", "-n").output


def test_plot_writes_a_picture_once(folder: Path) -> None:
    """-o writes it, refuses to write over it, and does so with --force."""
    pytest.importorskip("matplotlib")
    assert type_in("plot", "-s", "-o", "both.png", "0", "1").output == "wrote both.png\n"
    assert (folder / "both.png").stat().st_size > 10_000
    assert "--force" in str(type_in("plot", "-o", "both.png").exception)
    assert type_in("plot", "-f", "--force", "-w", "0,1", "-o", "both.png").exit_code == 0


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["plot", "2"], "there is no record number 2: 2 lie in"),
        (["peak", "-3"], "there is no record number -3"),
        (["plot", "gone.dat"], "there is no record 'gone.dat'"),
        (["peak", "--josn"], "there is no option --josn"),
        (["plot", "notes.txt"], "of no format that memlens reads"),
        (["plot", "-w", "5"], "cannot read '5' as a window"),
        (["plot", "-w", "5,2"], "must end after it begins"),
        (["plot", "-s"], "-f and -s are for pictures"),
        (["rm", "0", "notes.txt"], "of no format that memlens reads"),
        (["rm", "0", "7"], "there is no record number 7"),
    ],
)
def test_a_wrong_call_is_one_error(folder: Path, words: list[str], says: str) -> None:
    """A number or name that is not there, a file that is no record, an option without effect."""
    done = type_in(*words)
    assert isinstance(done.exception, MemlensError)
    assert says in str(done.exception)
    assert len(list(folder.iterdir())) == 3


def test_rm_means_the_numbers_of_list(folder: Path) -> None:
    """Both numbers are those before anything was removed; a dry run removes nothing."""
    assert type_in("rm", "--dry-run", "0", "-1").output == f"would remove {FIRST}\nwould remove {SECOND}\n"
    assert len(list(folder.iterdir())) == 3
    type_in("rm", "0", "-1", FIRST)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_clean_removes_records_and_nothing_else(folder: Path) -> None:
    """Default names only: what somebody named themselves is theirs."""
    (folder / "mine.memlens").write_bytes((folder / SECOND).read_bytes())
    assert type_in("clean", "--dry-run").output.count("would remove") == 2
    type_in("clean")
    assert sorted(path.name for path in folder.iterdir()) == ["mine.memlens", "notes.txt"]


def test_an_empty_directory_says_how_to_begin(folder: Path) -> None:
    """`plot` without any record points to `run`."""
    type_in("clean")
    error = type_in("plot").exception
    assert isinstance(error, MemlensError)
    assert "memlens run" in str(error.hint)


def test_a_second_run_in_the_same_second_has_a_name_of_its_own(folder: Path) -> None:
    """`memlens_STAMP.memlens`, then `_1`, `_2`: nothing is overwritten or refused, and all are listed."""
    now = time.struct_time((2026, 1, 31, 12, 0, 0, 5, 31, 0))  # the time of the record that is there
    for ending in ("_1", "_2"):
        path = free_name(folder, now)
        assert path.name == f"memlens_20260131120000{ending}.memlens"
        path.write_text("")
    assert [path.name for path in records(folder)][:2] == [FIRST, SECOND]
    assert len(records(folder)) == 4


@pytest.fixture
def allocations(folder: Path) -> None:
    """A prediction of 36 MiB allocated, 40 reserved, 42 of the process; a snapshot of 32 and 44."""
    native.save(remember(prediction()).trace, folder / "predicted.memlens")
    (folder / "snapshot.pickle").write_bytes(dumps(placed()))


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


@pytest.mark.usefixtures("allocations")
def test_plot_of_allocations() -> None:
    """Each record by its own figure; a window of a prediction is in events; -o draws them."""
    text = type_in("plot", "predicted.memlens", "snapshot.pickle", "0").output
    assert "predicted.memlens: peak 36.00 MiB allocated in backward, step 2, 40.00 MiB reserved" in text
    assert "snapshot.pickle: peak 32.00 MiB allocated, 44.00 MiB reserved" in text
    assert f"{FIRST}: python old.py" in text
    assert "event 9" in type_in("plot", "-w", "6,9", "predicted.memlens").output
    pytest.importorskip("matplotlib")
    assert type_in("plot", "-o", "x.svg", "predicted.memlens").output == "wrote x.svg\n"


@pytest.mark.usefixtures("allocations")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--figure", "rss", "predicted.memlens"], "--figure allocated"),
        (["--figure", "allocated", "0"], "holds no allocated memory"),
        (["-w", "90,99", "predicted.memlens"], "it ends at event 10"),
    ],
)
def test_a_figure_that_a_record_has_not(words: list[str], says: str) -> None:
    """The way out names the figure it has, or where it ends."""
    assert says in str(type_in("plot", *words).exception)
