"""`memlens compare` as typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import memlens
from memlens.cli.commands.compare import command
from memlens.errors import RecordError, UsageError
from memlens.model import Alloc, Category, Site, Trace
from memlens.records.native import save
from memlens.records.snapshot_writer import dumps


@pytest.fixture
def files(tmp_path: Path) -> tuple[str, str]:
    """A record and one in which an activation is half as large."""
    paths = []
    for name, size in (("before", 4096), ("after", 2048)):
        parameter = Alloc(1, 1024, Category.PARAMETER, Site("net.py", 3), address=0)
        activation = Alloc(2, size, Category.ACTIVATION, Site("net.py", 7), address=8192)
        save(Trace("measured", [parameter, activation]), tmp_path / f"{name}.memlens")
        paths.append(str(tmp_path / f"{name}.memlens"))
    return paths[0], paths[1]


def test_the_page(files: tuple[str, str]) -> None:
    """The difference, its line and its reason are on the page; equal lines are not."""
    printed = CliRunner().invoke(command, files, catch_exceptions=False).output
    assert "A: before.memlens (measured)" in printed
    assert "net.py:7" in printed
    assert "net.py:3" not in printed
    assert "each 0.5 times as" in printed


def test_records_by_number(files: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """0 and -1 are the oldest and the newest record of the directory, as for plot, peak and report."""
    for second, path in enumerate(map(Path, files)):
        path.rename(tmp_path / f"memlens_2026013112000{second}.memlens")
    monkeypatch.chdir(tmp_path)
    printed = CliRunner().invoke(command, ["0", "-1"], catch_exceptions=False).output
    assert "A: memlens_20260131120000.memlens" in printed
    assert "B: memlens_20260131120001.memlens" in printed


def test_json_and_by(files: tuple[str, str]) -> None:
    """--json has every row of the kinds asked for, in bytes."""
    result = CliRunner().invoke(command, [*files, "--json", "--by", "category"], catch_exceptions=False)
    shown = json.loads(result.output)
    assert shown["schema"] == "memlens.comparison/1"
    assert [(row["key"], row["delta_bytes"]) for row in shown["rows"]] == [
        ("activations", -2048),
        ("parameters", 0),
    ]


def test_output_is_not_overwritten(files: tuple[str, str], tmp_path: Path) -> None:
    """-o refuses a file that exists, and takes it with --force."""
    output = tmp_path / "difference.json"
    output.write_text("mine")
    with pytest.raises(UsageError, match="will not overwrite"):
        CliRunner().invoke(command, [*files, "-o", str(output)], catch_exceptions=False)
    CliRunner().invoke(command, [*files, "-o", str(output), "--force"], catch_exceptions=False)
    assert json.loads(output.read_text())["a"]["name"] == "before.memlens"


def test_a_snapshot_against_a_trace(tmp_path: Path) -> None:
    """In Python a file, a trace and anything that has one can be mixed."""
    trace = memlens.Trace("predicted", [Alloc(1, 1024, site=Site("net.py", 3), requested=1024, address=0)])
    (tmp_path / "snapshot.pickle").write_bytes(dumps(trace))
    found = memlens.compare(trace, str(tmp_path / "snapshot.pickle"))
    assert found.of("total")[0].delta_bytes == 0
    with pytest.raises(UsageError, match="a int is no record of memory"):
        memlens.compare(trace, 3)


def test_a_foreign_file(files: tuple[str, str], tmp_path: Path) -> None:
    """A file of no known kind is one clear error."""
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(RecordError, match="of no format"):
        CliRunner().invoke(command, [files[0], str(tmp_path / "notes.txt")], catch_exceptions=False)


@pytest.mark.torch
def test_a_saved_prediction_is_a_record_and_a_snapshot(tmp_path: Path) -> None:
    """What `predict -o` writes as .memlens and as .pickle holds the same, category by category."""
    pytest.importorskip("torch")
    from memlens.cli.commands.predict import command as predict

    (tmp_path / "net.py").write_text("import torch\ndef net(): return torch.nn.Linear(64, 64)\n")
    for name in ("a.memlens", "b.pickle"):
        words = [f"{tmp_path / 'net.py'}:net", "--input", "64", "--gpu", "t4", "-o", str(tmp_path / name)]
        CliRunner().invoke(predict, words, catch_exceptions=False)
    found = memlens.compare(tmp_path / "a.memlens", tmp_path / "b.pickle")
    assert found.of("category")
    assert [row for row in found.rows if row.delta_bytes and row.kind != "total"] == []


def test_a_table_that_neither_has_says_so(files: tuple[str, str]) -> None:
    """Asked for modules where no record knows any, the answer is a line, not nothing."""
    printed = CliRunner().invoke(command, [*files, "--by", "module"], catch_exceptions=False).output
    assert "by module: neither record knows" in printed
