"""`memlens advise`: exit codes, output people read, and one line for what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from click.testing import CliRunner, Result

from memlens.cli.main import cli
from memlens.errors import MemlensError, UsageError

pytestmark = pytest.mark.torch
NET = """
from torch import nn

def make_net(wide=1024):
    print("hello from the model")
    inner = (nn.Linear(wide, wide), nn.GELU(), nn.Linear(wide, wide), nn.GELU())
    return nn.Sequential(*inner, nn.Linear(wide, 10))
"""
CALL = ("net.py:make_net", "--batch-size", "16384")


@pytest.fixture(autouse=True)
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's file in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)


def run(*arguments: str, columns: int = 80) -> Result:
    return CliRunner().invoke(
        cli, ["advise", *arguments], env={"COLUMNS": str(columns)}, standalone_mode=False
    )


@pytest.mark.parametrize("columns", [80, 200])
def test_what_people_read(columns: int) -> None:
    """The verdict, both lists and the code, within the width; exit code 0, since something makes it fit."""
    result = run(*CALL, "--memory", "800MiB", columns=columns)
    assert result.return_value == 0
    lines = result.stdout.splitlines()
    assert lines[0].startswith("Does not fit a GPU with 800.00 MiB: needs ")
    assert max(map(len, lines)) <= columns
    for part in (
        "leaves the result of training as it is",
        "alters the result",
        "How to switch it on",
        "may not fit",
    ):
        assert part in result.stdout
    assert "hello from the model" not in result.stdout
    assert "\x1b" not in result.stdout


def test_json() -> None:
    """One document; the first advice says how much less and how to write it."""
    result = run(*CALL, "--memory", "800MiB", "--json", "--same-result")
    found = json.loads(result.stdout)
    assert found["schema"] == "memlens.advice/1"
    first = found["advice"][0]
    assert first["saves_bytes"] == found["base"]["process_bytes"] - first["process_bytes"]
    assert first["how"]
    assert found["largest_batch"] is None


def test_nothing_found_is_1() -> None:
    """The context alone is larger than this card."""
    result = run("net.py:make_net", "--memory", "50MiB", "--same-result")
    assert result.return_value == 1
    assert "Nothing found makes it fit." in result.stdout


def test_the_largest_batch() -> None:
    """The number, what it fits into, what the process grows to on the whole card as `memlens predict` says of
    that batch, and what one more would need."""
    result = run("net.py:make_net", "--memory", "700MiB", "--largest-batch", "--margin", "10%")
    assert result.return_value == 0
    assert result.stdout.startswith("The largest batch on a GPU with 700.00 MiB is ")
    said = " ".join(result.stdout.split())
    assert "70.00 MiB less than the card has" in said
    assert "would need" in said
    batch, kept = (
        said.split(" is ")[1].split(":")[0].replace(",", ""),
        said.split("grows to ")[1].split(",")[0],
    )
    predicted = CliRunner().invoke(
        cli, ["predict", "net.py:make_net", "--memory", "700MiB", "--batch-size", batch]
    )
    assert f"needs {kept} of 700.00 MiB" in predicted.stdout


def test_no_batch_fits() -> None:
    """0 samples, exit code 1."""
    result = run("net.py:make_net", "--memory", "50MiB", "--largest-batch")
    assert result.return_value == 1
    assert result.stdout.startswith("Not even one sample fits a GPU with 50.00 MiB")


def test_files(tmp_path: Path) -> None:
    """Written by ending, and never over another file unless told to."""
    call = ("net.py:make_net", "--memory", "700MiB", "--largest-batch")
    assert run(*call, "-o", "out.json").return_value == 0
    assert json.loads((tmp_path / "out.json").read_text())["largest_batch"]["batch_size"] > 0
    assert isinstance(run(*call, "-o", "out.json").exception, UsageError)
    assert run(*call, "-o", "out.txt", "--force").return_value == 0
    assert (tmp_path / "out.txt").read_text().startswith("The largest batch")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--largest-batch",), "no card"),
        (("--gpu", "T4", "--margin", "5%"), "--margin has no meaning without --largest-batch"),
        (("--gpu", "T4", "--largest-batch", "--batch-size", "3"), "--batch-size has no meaning with"),
        (("--gpu", "T4", "--largest-batch", "--margin", "120%"), "leaves nothing"),
        (("--gpu", "nosuch"), "knows no GPU"),
    ],
)
def test_wrong_calls(arguments: tuple[str, ...], message: str) -> None:
    """One line that names what is wrong."""
    error = run("net.py:make_net", *arguments).exception
    assert isinstance(error, MemlensError)
    assert message in str(error)


def test_a_script(tmp_path: Path) -> None:
    """Its own arguments follow `--`; what has no meaning for it is refused; what is advised is shown."""
    (tmp_path / "train.py").write_text(
        "import sys, torch\nnet = torch.nn.Linear(4096, int(sys.argv[1])).cuda()\n"
        "optimizer = torch.optim.AdamW(net.parameters())\nfor step in range(9):\n"
        "    loss = net(torch.ones(4, 4096, device='cuda')).sum()\n    optimizer.zero_grad()\n"
        "    loss.backward()\n    optimizer.step()\n"
    )
    result = run("train.py", "--memory", "2GiB", "--same-result", "--json", "--", "4096")
    assert result.return_value == 0, result.output
    found = json.loads(result.stdout)
    assert found["target"] == "train.py 4096"
    names = [item["name"] for item in found["advice"]]
    assert names[0] == "fused-optimizer"
    assert {item["name"] for item in found["refused"]} >= {"micro-batch"}
    wrong = run("train.py", "--gpu", "T4", "--batch-size", "4").exception
    assert "--batch-size has no meaning for train.py" in str(wrong)
    wrong = run("net.py:make_net", "--gpu", "T4", "--batch-arg", "n").exception
    assert "--batch-arg has no meaning for net.py:make_net" in str(wrong)
