"""`memlens summary`: the table at two widths, other pages, files, and options that mean nothing together."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from click.testing import CliRunner, Result

from memlens.cli.main import cli
from memlens.errors import MemlensError

pytestmark = pytest.mark.torch
NET = """
import torch
from torch import nn
import torch.nn.functional as F

class Net(nn.Module):
    def __init__(self, wide=64):
        super().__init__()
        self.conv1 = nn.Conv2d(3, wide, 3, padding=1)
        self.conv2 = nn.Conv2d(wide, wide, 3, padding=1)
    def forward(self, x):
        return F.relu(self.conv2(F.relu(self.conv1(x))))
"""


@pytest.fixture(autouse=True)
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's file in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)


def run(*arguments: str, columns: int = 80) -> Result:
    return CliRunner().invoke(
        cli,
        ["summary", "net.py:Net", "--input", "3x32x32", *arguments],
        env={"COLUMNS": str(columns)},
        standalone_mode=False,
    )


def test_the_table_fits_the_terminal() -> None:
    """At 80 columns the shapes, parameters and kept bytes; at 200 every default column; never wider."""
    narrow, wide = run().output, run(columns=200).output
    for text, columns in ((narrow, 80), (wide, 200)):
        table = text.split("Total params")[0]
        assert max(map(len, table.splitlines())) <= columns
    assert "├─Conv2d (conv1): 1-1" in narrow
    assert "└─relu: 1-4" in narrow
    assert "Kept" in narrow.splitlines()[1]
    for title in ("Output Shape", "Param #", "Kept", "Mult-Adds", "Output", "Transient", "Buffers", "Calls"):
        assert title in wide.splitlines()[1]


def test_totals_have_the_labels_that_people_look_for() -> None:
    """torchinfo's words for what means the same, and the bytes that backward keeps."""
    lines = run().output.splitlines()
    assert "Total params: 38,720" in lines
    assert "Trainable params: 38,720" in lines
    assert "Total mult-adds (M): 39.52" in lines
    assert "Input size: 12.00 KiB" in lines
    assert "Kept for backward: 524.00 KiB, of which the batch 12.00 KiB" in lines


def test_depth_columns_and_sort() -> None:
    """Depth 0 is one row with everything; columns are those asked for; sorted rows are a list of paths."""
    folded = run("--depth", "0").output
    assert "conv1" not in folded
    assert "38,720" in folded.splitlines()[3]
    chosen = run("--columns", "kernel_size,trainable,kept_percent").output.splitlines()[1]
    assert chosen.split("  ")[-1].strip() == "Kept %"
    listed = run("--sort", "kept_bytes").output.splitlines()
    assert listed[3].startswith("/relu ")
    assert any(line.startswith("conv1 (Conv2d) ") for line in listed)
    assert run("--sort", "kept_bytes", "--depth", "0").output.splitlines()[3].startswith("Net ")


def test_depth_and_sort_of_the_data(tmp_path: Path) -> None:
    """Rows in JSON and CSV are folded and sorted where that is asked for; their sums are the totals still."""
    document = json.loads(run("--json", "--depth", "0").output)
    assert len(document["rows"]) == 1
    assert document["rows"][0]["kept_bytes"] == document["totals"]["kept_bytes"]
    run("-o", "table.csv", "--sort", "kept_bytes")
    rows = list(csv.DictReader((tmp_path / "table.csv").read_text().splitlines()))
    sizes = [int(row["kept_bytes"]) for row in rows]
    assert sizes == sorted(sizes, reverse=True)
    assert len(run("--formulas", "--depth", "0").output.splitlines()) < 20


def test_formulas() -> None:
    """A layer's own numbers, worked out: parameters, multiply-adds, output and what is kept."""
    text = run("--formulas", columns=120).output
    assert "params    C_in × C_out × K × K + C_out = 3 × 64 × 3 × 3 + 64 = 1,792" in text
    assert "output    N × C × H × W × bytes = 1 × 64 × 32 × 32 × 4 = 262,144 B = 256.00 KiB" in text
    assert "kept      N × C × H × W × bytes, the batch = 1 × 3 × 32 × 32 × 4 = 12,288 B = 12.00 KiB" in text


def test_like_torchsummary() -> None:
    """Its four lines, and beside them what they are in memory."""
    text = run("--like", "torchsummary", columns=120).output
    assert "Forward/backward pass size (MB): 1.00       0.512 MiB kept for backward" in text
    assert "not seen: the output of an operator, relu" in text


def test_json_and_files(tmp_path: Path) -> None:
    """The ending says the format; an existing file is left alone without --force."""
    document = json.loads(run("--json", "--like", "torchinfo").output)
    assert document["schema"] == "memlens.summary/1"
    assert document["totals"]["kept_bytes"] == sum(row["kept_bytes"] for row in document["rows"])
    assert document["like"]["tool"] == "torchinfo"
    run("-o", "table.csv")
    rows = list(csv.DictReader((tmp_path / "table.csv").read_text().splitlines()))
    assert [row["type"] for row in rows] == ["Net", "Conv2d", "relu", "Conv2d", "relu"]
    refused = run("-o", "table.csv")
    assert isinstance(refused.exception, MemlensError)
    assert "will not overwrite table.csv" in str(refused.exception)
    assert run("-o", "table.csv", "--force").exception is None
    run("-o", "table.txt")
    assert "├─Conv2d (conv1): 1-1" in (tmp_path / "table.txt").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--sort", "colour"), "cannot sort by 'colour'"),
        (("--columns", "memory"), "there is no column 'memory'"),
        (("--like", "torchsumary"), "unknown tool 'torchsumary'"),
        (("--mode", "trian"), "unknown mode 'trian'"),
        (("--json", "--columns", "kept_bytes"), "--columns has no effect on the data"),
        (("--formulas", "--columns", "kept_bytes"), "--columns has no effect on --formulas"),
        (("--like", "torchinfo", "--sort", "params"), "--sort has no effect on --like"),
        (("--json", "--formulas"), "--formulas has no effect on the data"),
        (("--formulas", "--like", "torchinfo"), "--formulas and --like are two pages"),
        (("-o", "table.xlsx"), "cannot write table.xlsx"),
        (("-o", "no/table.csv"), "there is no folder no"),
    ],
)
def test_what_is_wrong_is_said(arguments: tuple[str, ...], message: str) -> None:
    """An option without effect and a word that is none of the known ones are errors."""
    result = run(*arguments)
    assert isinstance(result.exception, MemlensError)
    assert message in str(result.exception)


@pytest.mark.parametrize("page", [("--formulas",), ("--like", "torchsummary"), ("--like", "torchinfo"), ()])
def test_every_page_fits_80_columns(page: tuple[str, ...]) -> None:
    """Longer lines are broken at spaces and go on indented."""
    assert max(map(len, run(*page).output.splitlines())) <= 80
