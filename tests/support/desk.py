"""The folder of somebody who types what the documentation says: each file that a command names is made."""

from __future__ import annotations

import json
from collections.abc import Callable
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path

from memlens.allocator import replay
from memlens.model import Alloc, Free, Process, Sample, Site, Span, Trace
from memlens.records import mprofile, native
from memlens.records.snapshot_writer import dumps
from memlens.units import MIB

SECOND = 1_000_000  # in microseconds

PLAIN = """
import argparse
import time

@profile
def load():
    rows = [str(number) for number in range(100_000)]
    time.sleep(1)  # seen from outside however long the recorder takes to start
    return rows

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
parser.parse_args()
load()
"""
TRAINING = """
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=1)
parser.add_argument("--lr", type=float, default=0.1)
options = parser.parse_args()
batch_size = 64
device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Linear(1024, 1024).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr)
for epoch in range(options.epochs):
    for batch in range(100):
        optimizer.zero_grad()
        model(torch.randn(batch_size, 256, 1024, device=device)).square().mean().backward()
        optimizer.step()
"""
NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Linear(width, 10)

    def forward(self, images):
        return self.head(self.features(images).mean((2, 3)))

def make_model(width=8):
    return Net(width)
"""
TINY_LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 1000, "hidden_size": 64,
    "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 8192,
}  # fmt: skip


def sampled() -> Trace:
    """Ten seconds of a program with a child and two calls of `load`."""
    samples = [Sample(number * SECOND, 7, (10 + number) * MIB) for number in range(10)]
    samples += [Sample(number * SECOND, 8, 20 * MIB) for number in range(3, 6)]
    trace = Trace("measured", sorted(samples, key=lambda sample: sample.time_us))
    trace.processes = [
        Process(7, "python train.py", ended_us=10 * SECOND),
        Process(8, "python worker.py", parent=7),
    ]
    trace.spans = [Span("__main__.load", SECOND, 4 * SECOND, 11 * MIB, 14 * MIB, 0, 7)]
    trace.metadata = {"command": "python train.py", "figure": "rss"}
    return trace


def placed() -> Trace:
    """A few seconds of a training loop on a card, as PyTorch records them."""
    line, other = Site("train.py", 12, "step"), Site("net.py", 9, "forward")
    events = [
        Alloc(0, 24 * MIB, site=other, time_us=0),
        Alloc(1, 8 * MIB, site=line, time_us=SECOND),
        Free(0, time_us=2 * SECOND),
        Alloc(2, 12 * MIB, site=line, time_us=3 * SECOND),
    ]
    return replay(Trace("measured", events, metadata={"started_us": 0}))


def write_package(path: Path, text: str) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)


CELLS = (
    "%matplotlib inline\nimport importlib.util",
    "numbers = list(range(100_000))\nlen(numbers)",
    "has_torch = importlib.util.find_spec('torch') is not None",
    """
if has_torch:
    import torch
    model = torch.nn.Linear(256, 256).to("cuda" if torch.cuda.is_available() else "cpu")
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(64, 256).to(model.weight.device)).sum().backward()
        optimizer.step()
""",
)


def write_notebook(path: Path) -> None:
    """A notebook that trains a little, and runs where there is neither torch nor a GPU, too."""
    cells = [
        {"cell_type": "code", "metadata": {}, "source": text, "outputs": [], "execution_count": None}
        for text in CELLS
    ]
    path.write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 4}))


# what a file is, by its name. The first pattern that matches counts
FILES: dict[str, Callable[[Path], object]] = {
    "net.py": lambda path: path.write_text(NET),
    "config.json": lambda path: path.write_text(json.dumps(TINY_LLAMA)),
    "*.ipynb": write_notebook,
    "*.pickle": lambda path: path.write_bytes(dumps(placed())),
    "before.memlens": lambda path: native.save(placed(), path),
    "after.memlens": lambda path: native.save(placed(), path),
    "predicted.memlens": lambda path: native.save(placed(), path),
    "*.memlens": lambda path: native.save(sampled(), path),
    "*.dat": lambda path: mprofile.save(sampled(), path),
    "[AB]": lambda path: native.save(placed(), path),
}
ALWAYS = ("mprofile_20251231235959.dat", "memlens_20260131120000.memlens")  # what `memlens list` lists


def lay_out(folder: Path, words: list[str]) -> None:
    """Make what the command in `words` reads, unless an earlier one made it; what it writes is not made."""
    names = [word.removeprefix("hf:").split(":")[0] for word in words]
    written = {after for option, after in pairwise(names) if option in ("-o", "--output")}
    for name in [*ALWAYS, *names]:
        make = next((FILES[pattern] for pattern in FILES if fnmatch(name, pattern)), None)
        if make is not None and name not in written and not (folder / name).exists():
            make(folder / name)
    if "package.module" in words:
        write_package(folder / "package" / "module.py", "print('hello')\n")
    if "package.train" in words:
        write_package(folder / "package" / "train.py", TRAINING)
    if "make" in words:
        (folder / "Makefile").write_text("all:\n\t@echo built\n")
    (folder / "train.py").write_text(PLAIN if "run" in words else TRAINING)
    if not (folder / "examples").exists():
        (folder / "examples").symlink_to(Path(__file__).parents[2] / "examples")
