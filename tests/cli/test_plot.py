"""`memlens plot`: curves in the terminal and pictures, and what mprof's users type."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.record_folder import FIRST, type_in

from memlens.errors import MemlensError

pytestmark = pytest.mark.usefixtures("folder")


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


def test_an_empty_directory_says_how_to_begin(folder: Path) -> None:
    """`plot` without any record points to `run`."""
    type_in("clean")
    error = type_in("plot").exception
    assert isinstance(error, MemlensError)
    assert "memlens run" in str(error.hint)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["plot", "2"], "there is no record 2: "),
        (["plot", "gone.dat"], "there is no record 'gone.dat'"),
        (["plot", "notes.txt"], "of no format that memlens reads"),
        (["plot", "-w", "5"], "cannot read '5' as a window"),
        (["plot", "-w", "5,2"], "must end after it begins"),
        (["plot", "-s"], "-f and -s are for pictures"),
    ],
)
def test_a_wrong_call_is_one_error(folder: Path, words: list[str], says: str) -> None:
    """A number or name that is not there, a file that is no record, an option without effect."""
    done = type_in(*words)
    assert isinstance(done.exception, MemlensError)
    assert says in str(done.exception)
    assert len(list(folder.iterdir())) == 3
