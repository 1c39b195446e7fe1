"""A command line as people type it: whatever stands in front of the script, the script is what is run."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

pytest.importorskip("torch")

from memlens.errors import UsageError
from memlens.explanation.prediction import Prediction
from memlens.scenarios.command_lines.names import is_command
from memlens.scenarios.command_lines.read import read_command_line, read_module
from memlens.scenarios.script.arguments import with_value
from memlens.scenarios.script.predict_script import Script, predict_script
from memlens.scenarios.script.ranks import TORCHRUN

pytestmark = pytest.mark.torch
PACKAGE = Path(__file__).parents[2] / "examples" / "package"
# a line, the arguments that reach the script, and what is stated of the other ranks
LINES = {
    "python train.py --lr 1": (["--lr", "1"], ""),
    "python3 -u -W ignore train.py --lr 1": (["--lr", "1"], ""),
    "uv run python train.py -m 3": (["-m", "3"], ""),
    "torchrun train.py --lr 1": (["--lr", "1"], ""),
    "torchrun --nproc-per-node 1 --standalone train.py": ([], ""),
    "torchrun --nproc_per_node=8 --nnodes=2 train.py -x": (["-x"], "2 x 8"),
    "torchrun --nnodes 1:4 --nproc-per-node gpu train.py": ([], "4 x gpu"),
    "python -m torch.distributed.run --nproc-per-node 4 train.py --lr 1": (["--lr", "1"], "4"),
    "python -m torch.distributed.launch --nproc_per_node=1 train.py --lr 1": (
        ["--local-rank=0", "--lr", "1"], "",
    ),
    "python -m torch.distributed.launch --use-env train.py": ([], ""),
    "deepspeed --num_gpus 2 --master_port 1 train.py --deepspeed ds.json": (
        ["--local_rank=0", "--deepspeed", "ds.json"], "2",
    ),
    "deepspeed --no_local_rank train.py": ([], ""),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a script, in which the command is typed."""
    (tmp_path / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What pip leaves of examples/package: its metadata, with the command that its pyproject.toml has."""
    scripts = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]["scripts"]
    metadata = tmp_path / "tiny_segmenter-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: tiny-segmenter\nVersion: 1.0\n")
    lines = [f"{name} = {value}" for name, value in scripts.items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[console_scripts]", *lines]))
    for path in (tmp_path, PACKAGE):
        monkeypatch.syspath_prepend(str(path))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{PACKAGE}")
    return tmp_path


@pytest.mark.parametrize("line", LINES)
def test_the_script_and_its_arguments_are_what_a_line_ends_with(folder: Path, line: str) -> None:
    """Options of Python and of launchers are theirs; more ranks than the one that is run are stated."""
    script = read_command_line(line.split())
    arguments, ranks = LINES[line]
    assert (script.path, list(script.arguments)) == ("train.py", arguments)
    assert script.ranks == ranks
    launched = any(word in line for word in ("torchrun", "torch.distributed", "deepspeed"))
    assert script.environment == (TORCHRUN if launched else {})


def test_what_stands_before_a_command_is_its_environment(folder: Path) -> None:
    """`NAME=value` as a shell reads it; a rank that was typed is kept."""
    script = read_command_line(["MODE=fast", "MASTER_PORT=1", "torchrun", "train.py"])
    assert script.environment == {**TORCHRUN, "MODE": "fast", "MASTER_PORT": "1"}


def test_another_interpreter_is_stated(folder: Path) -> None:
    """The libraries that are seen are those of memlens's environment; its own interpreter is no news."""
    other = folder / "python3.11"
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    assert read_command_line([sys.executable, "train.py"]).assumptions == ()
    (stated,) = read_command_line([str(other), "train.py"]).assumptions
    assert stated.what == f"`{other}` is taken as {sys.executable}"


def test_a_module_is_found_without_importing_it(folder: Path) -> None:
    """Its package would run: here it must not. A package is run by its `__main__`."""
    (folder / "pack").mkdir()
    (folder / "pack" / "__init__.py").write_text("raise SystemExit('imported')")
    (folder / "pack" / "train.py").write_text("")
    (folder / "pack" / "__main__.py").write_text("")
    assert read_module("pack.train", ("--lr",)) == Script(
        str(folder / "pack" / "train.py"), ("--lr",), module="pack.train"
    )
    assert Path(read_command_line(["python", "-m", "pack"]).path).name == "__main__.py"
    assert read_command_line(["torchrun", "-m", "pack.train"]).module == "pack.train"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("python -m no.such", "there is no module 'no.such'"),
        ("python -m", "runs no script"),
        ("python -c pass", "runs no script and no module"),
        ("torchrun --no-such-option train.py", "torchrun does not take this"),
        ("torchrun", "torchrun does not take this: the following arguments are required"),
        ("deepspeed --bind_core train.py", "deepspeed does not take this"),
        ("bash run.sh", "is a shell's script"),
        ("uv run no_such_command_here", "no Python command 'no_such_command_here'"),
        ("accelerate config", "`accelerate config` runs no script"),
    ],
)
def test_a_line_that_starts_no_script_is_refused(folder: Path, line: str, says: str) -> None:
    """One error, which says the line or the word that it is about."""
    with pytest.raises(UsageError) as caught:
        read_command_line(line.split())
    assert says in caught.value.message
    assert caught.value.hint


def test_a_model_is_no_command() -> None:
    """`memlens predict resnet50` and objects in files stay targets."""
    words = ("resnet50", "net.py:make", "package.module:Net", "timm:resnet50", "train.py", "nb.ipynb")
    assert [word for word in words if is_command(word)] == []
    assert is_command("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128")


def test_a_setting_before_the_command_is_the_allocators(folder: Path) -> None:
    """What a shell would set for the script alone, its allocator reads, too; a file need not end in .py."""
    (folder / "run_it").write_text(
        f"#!{sys.executable}\nimport torch\nx = torch.zeros(2**20, device='cuda')\n"
    )
    conf = "expandable_segments:True"
    assert is_command("./run_it")
    script = read_command_line([f"PYTORCH_CUDA_ALLOC_CONF={conf}", "./run_it", "--fast"])
    assert script.arguments == ("--fast",)
    assert predict_script(script, gpu="T4").scenario["alloc_conf"] == conf


def predicted(script: Script) -> Prediction:
    prediction = predict_script(script, gpu="T4")
    prediction.trace.check()
    assert prediction.scenario["steps"] == 2
    return prediction


def test_the_example_package_runs_as_a_module_and_as_a_command(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same need to the byte, its own relative imports included, and the peak is at a line of its own."""
    monkeypatch.chdir(PACKAGE)
    module = predicted(read_module("tiny_segmenter.train", ("--batch-size", "16")))
    command = predicted(read_command_line(["segment-train", "--batch-size", "16"]))
    assert module.target == "-m tiny_segmenter.train --batch-size 16"
    assert command.target == "segment-train --batch-size 16"
    assert module.peak == command.peak
    assert "tiny_segmenter" in module.peak.line
    small = predicted(with_value(read_module("tiny_segmenter.train", ()), "batch_size", 4))
    assert small.peak.allocated_bytes < module.peak.allocated_bytes


ACCELERATED = """
import torch
from accelerate import Accelerator
accelerator = Accelerator()
model = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(8)])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model, optimizer = accelerator.prepare(model, optimizer)
while True:
    optimizer.zero_grad()
    out = model(torch.randn(65536, 512, device=accelerator.device))
    accelerator.backward(out.float().square().mean())
    optimizer.step()
"""


def test_accelerate_launch_says_the_precision_and_the_ranks(folder: Path) -> None:
    """bf16 halves what the layers keep. Two ranks would have buckets: 8 layers' gradients, 8.02 MiB more."""
    pytest.importorskip("accelerate")
    (folder / "train.py").write_text(ACCELERATED)
    plain = predicted(read_command_line(["accelerate", "launch", "--num_processes", "1", "train.py"]))
    line = "python -m accelerate.commands.launch --mixed_precision bf16 --num_processes 2 train.py"
    half = predicted(read_command_line(line.split()))
    assert half.breakdown["activations"] < 0.7 * plain.breakdown["activations"]
    ranks = {a.what: a.high_bytes for a in half.assumptions}["2 processes were asked for, and one was run"]
    assert ranks == 8 * (512 + 1) * 512 * 4
    assert not any("processes" in a.what for a in plain.assumptions)
