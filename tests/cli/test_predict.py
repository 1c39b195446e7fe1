"""`memlens predict`: exit codes, output people read, files, and one line for what is wrong."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

from click.testing import CliRunner, Result

import memlens
from memlens.cli.commands.report import command as report
from memlens.cli.main import cli, main
from memlens.errors import MemlensError

pytestmark = pytest.mark.torch
NET = """
import time
import torch
from torch import nn

def make_net(wide=1024):
    return nn.Sequential(nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, 10))

def loud():
    print("hello from the model")
    return make_net()

def slow():
    print("started", flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's file in the current folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)


def run(*arguments: str, columns: int = 80) -> Result:
    return CliRunner().invoke(
        cli, ["predict", *arguments], env={"COLUMNS": str(columns)}, standalone_mode=False
    )


def test_it_fits_and_says_so_first() -> None:
    """The first line is the verdict with the headroom, the exit code 0."""
    result = run("net.py:make_net", "--gpu", "4090", "--batch-size", "64")
    assert result.return_value == 0
    first = result.output.splitlines()[0]
    assert first.startswith("Fits the RTX 4090: needs ")
    assert first.endswith(" to spare")


def test_it_does_not_fit_and_exits_with_1() -> None:
    """A script can act on the answer."""
    result = run("net.py:make_net", "--memory", "600MiB", "--batch-size", "100000")
    assert result.return_value == 1
    assert result.output.startswith("Does not fit a GPU with 600.00 MiB: needs ")


@pytest.mark.parametrize("columns", [80, 200])
def test_the_output_is_made_for_its_width(columns: int) -> None:
    """No line is too long, nothing is cut, no colour in a pipe, and every part is there."""
    output = run("net.py:make_net", "--gpu", "T4", "--batch-size", "64", columns=columns).output
    assert max(len(line) for line in output.splitlines()) <= columns
    assert "…" not in output
    assert "\x1b" not in output
    for part in (
        "Memory at the peak",
        "Where the peak is",
        "What holds most",
        "Allocated over step",
        "assumed",
    ):
        assert part in output
    assert "└forward" in output


def test_without_a_card_the_catalogue_is_shown() -> None:
    """The cards that it fits, by memory; the exit code is 0, since nothing was asked that could fail."""
    result = run("net.py:make_net")
    assert result.return_value == 0
    assert "Cards it fits" in result.output
    assert " 24 GiB  fits  " in result.output
    assert "RTX 3090" in result.output


def test_json_is_the_same_prediction() -> None:
    """One document on stdout, whose breakdown sums to the process."""
    found = json.loads(run("net.py:make_net", "--gpu", "4090", "--json").output)
    assert found["schema"] == "memlens.prediction/1"
    assert found["target"] == "net.py:make_net"
    assert sum(found["breakdown_at_peak"].values()) == found["peak"]["process_bytes"]
    assert found["scenario"]["inputs"] == ["1024"]
    assert len(found["steps"]) == 2


def test_what_the_model_prints_stays_out_of_the_result() -> None:
    """stdout is one JSON document although the user's factory prints; its words are on stderr."""
    result = run("net.py:loud", "--gpu", "4090", "--json")
    assert json.loads(result.stdout)["fits"] is True
    assert "hello from the model" in result.stderr


def test_options_reach_the_scenario() -> None:
    """Each option is found in the result."""
    found = json.loads(
        run(
            "net.py:make_net", "--gpu", "4090", "--json", "--model-arg", "wide=256", "--input", "256",
            "--optimizer", "sgd", "--optimizer-arg", "momentum=0.9", "--precision", "amp-bf16",
            "--loss", "sum", "--accumulate", "3", "--steps", "3", "--batch-size", "7",
        ).output
    )  # fmt: skip
    assert found["scenario"] == {
        "mode": "train", "batch_size": 7, "inputs": ["256"], "precision": "amp-bf16", "optimizer": "sgd",
        "optimizer_arguments": {"momentum": 0.9}, "loss": "sum", "accumulate": 3,
        "grad_checkpointing": False, "steps": 3, "alloc_conf": None,
    }  # fmt: skip
    assert len(found["steps"]) == 3


def test_a_file_is_written_once() -> None:
    """`-o` writes by the ending and refuses to overwrite without --force, before anything is computed."""
    for name, starts in (("out.json", "{"), ("out.txt", "Fits the RTX 4090")):
        assert run("net.py:make_net", "--gpu", "4090", "-o", name).return_value == 0
        assert Path(name).read_text().startswith(starts)
        refused = run("no_such.py:thing", "-o", name)
        assert isinstance(refused.exception, MemlensError)
        assert refused.exception.message == f"will not overwrite {name}"
        assert "--force" in (refused.exception.hint or "")
        assert run("net.py:make_net", "--gpu", "4090", "-o", name, "--force").return_value == 0


def test_the_page_and_the_record_say_the_same() -> None:
    """`-o page.html` is what `memlens report` makes of `-o x.memlens`: the verdict is its heading."""
    for name in ("page.html", "x.memlens"):
        assert run("net.py:make_net", "--gpu", "4090", "-o", name).return_value == 0
    assert CliRunner().invoke(report, ["x.memlens"]).output == "wrote x.html\n"
    first, second = (
        next(line for line in Path(name).read_text().splitlines() if line.startswith("<h1"))
        for name in ("page.html", "x.html")
    )
    assert first == second
    assert "Fits the RTX 4090: needs" in first


def test_an_output_of_no_known_format_is_refused() -> None:
    """The ending says the format; a folder that is not there is said so."""
    for name, says in (("out.doc", "cannot write out.doc"), ("gone/out.txt", "there is no folder gone")):
        result = run("net.py:make_net", "-o", name)
        assert isinstance(result.exception, MemlensError)
        assert says in result.exception.message


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["net.py"], "net.py put nothing on the GPU"),
        (["nett.py:make_net"], "there is no file nett.py"),
        (["net.py:make_net", "--gpu", "40900"], "knows no GPU called '40900'"),
        (
            ["net.py:make_net", "--batch-size", "-1"],
            "batch size must be a whole number of at least 1, got -1",
        ),
        (["net.py:make_net", "--input", "flot32:3"], "unknown dtype 'flot32'"),
        (["net.py:make_net", "--input", "3x"], "cannot read --input '3x'"),
        (
            ["net.py:make_net", "--input", "77"],
            "0 (Linear), whose weight is 1024x1024, failed on an input of 1x77",
        ),
        (["net.py:make_net", "--model-arg", "width=3"], "got an unexpected keyword argument 'width'"),
        (["net.py:make_net", "--optimizer", "adamv"], "did you mean"),
        (["net.py:make_net", "--batch-size", "many"], "'many' is not a valid integer"),
        (["net.py:make_net", "--no-such-option"], "no such option"),
        ([], "no target was named"),
        (["train.py", "--epochs", "3"], "it is the program's own: memlens predict train.py ... -- --epochs"),
        (["-m", "no.such.module"], "there is no module 'no.such.module'"),
        (["python", "train.py", "--gpu", "T4"], "there is no file train.py"),
        (["--batch-size", "3", "python", "train.py"], "--batch-size has no meaning for python"),
    ],
)
def test_wrong_usage_is_exit_2_without_a_traceback(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One clear error on stderr, nothing on stdout."""
    with pytest.raises(SystemExit) as stop:
        main(["predict", *arguments])
    printed = capsys.readouterr()
    assert stop.value.code == 2
    assert says in printed.err
    assert "Traceback" not in printed.err
    assert printed.out == ""


def environment(*folders: Path) -> dict[str, str]:
    """Where a new process finds this memlens, and before it what `folders` hold."""
    paths = [*folders, Path(memlens.__file__).parents[1], os.environ.get("PYTHONPATH", "")]
    return dict(os.environ, PYTHONPATH=os.pathsep.join(map(str, paths)))


def test_ctrl_c_is_one_line_and_130() -> None:
    """Stopped while the user's own factory runs: no traceback."""
    command = [sys.executable, "-m", "memlens", "predict", "net.py:slow", "--gpu", "4090"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment()) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "started\n"
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert (process.returncode, err.strip()) == (130, "memlens: stopped by Ctrl-C")


@pytest.mark.parametrize("target", ["net.py:make_net", "net.py"])
def test_without_torch_the_extra_is_named(tmp_path: Path, target: str) -> None:
    """`memlens predict` on a plain installation says what to install; `--help` needs nothing."""
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')")
    command = [sys.executable, "-m", "memlens", "predict"]
    options = {"capture_output": True, "text": True, "env": environment(tmp_path)}
    found = subprocess.run([*command, target], **options)
    assert found.returncode == 2
    assert "needs torch, which is not installed" in found.stderr
    assert "memlens[torch]" in found.stderr
    helped = subprocess.run([*command, "--help"], **options)
    assert helped.returncode == 0
    assert "memlens predict timm:resnet50" in helped.stdout
