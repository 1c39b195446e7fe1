"""`memlens report`: names, refusals, any format."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.support.desk import FILES, placed, sampled
from tests.support.predictions import prediction

from memlens.cli.commands.report import command
from memlens.errors import MemlensError
from memlens.explanation.prediction_record import remember
from memlens.records import mprofile, native
from memlens.records.snapshot_writer import dumps


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def type_in(*words: str) -> Result:
    return CliRunner().invoke(command, list(words))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("run.memlens", "Peak of 35.00 MiB after 5.00 s, 1 child included"),
        ("run.dat", "Peak of 35.00 MiB after 5.00 s, 1 child included"),
        ("snapshot.pickle", "Peak on cuda:0: 32.00 MiB allocated, 44.00 MiB reserved"),
        ("predicted.memlens", "Fits a test card: needs 42.00 MiB of 64.00 MiB, 22.00 MiB to spare"),
    ],
)
def test_any_record_becomes_a_page(folder: Path, name: str, says: str) -> None:
    """NAME.html in this directory, whatever the format, with the answer as its heading."""
    native.save(sampled(), folder / "run.memlens")
    mprofile.save(sampled(), folder / "run.dat")
    (folder / "snapshot.pickle").write_bytes(dumps(placed()))
    native.save(remember(prediction()).trace, folder / "predicted.memlens")
    done = type_in(name)
    page = folder / Path(name).with_suffix(".html")
    assert done.output == f"wrote {page.name}\n"
    assert f">{says}</h1>" in page.read_text()


def test_a_page_is_not_overwritten(folder: Path) -> None:
    """Without --force the page that is there stays as it is."""
    FILES["*.memlens"](folder / "memlens_20260131120000.memlens")
    (folder / "page.html").write_text("mine")
    error = type_in("-o", "page.html").exception
    assert isinstance(error, MemlensError)
    assert "will not overwrite page.html" in str(error)
    assert (folder / "page.html").read_text() == "mine"
    assert type_in("-o", "page.html", "--force").exit_code == 0
    assert (folder / "page.html").read_text().startswith("<!doctype html>")


def test_a_name_or_a_number_or_the_newest(folder: Path) -> None:
    """-1 is the newest record of this directory, and so is nothing."""
    FILES["*.memlens"](folder / "memlens_20260131120000.memlens")
    assert type_in("-1").output == "wrote memlens_20260131120000.html\n"
    assert type_in("--force").output == "wrote memlens_20260131120000.html\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["gone.memlens"], "there is no record 'gone.memlens'"),
        (["notes.txt"], "of no format that memlens reads"),
        (["notes.txt", "-o", "page.pdf"], "the ending says the format"),
    ],
)
def test_a_wrong_call_is_one_error(folder: Path, words: list[str], says: str) -> None:
    """A file that is not there, that is no record, or a page of another kind; nothing is written."""
    (folder / "notes.txt").write_text("mine")
    error = type_in(*words).exception
    assert isinstance(error, MemlensError)
    assert says in str(error)
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]
