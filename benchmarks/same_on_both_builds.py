"""Predictions that must be the same on every build of torch, as JSON; CI compares two builds' output.

python -m benchmarks.same_on_both_builds > here.json
"""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import memlens

EXAMPLES = Path(__file__).parents[1] / "examples"

Program = Callable[[], None]


def example(name: str) -> ModuleType:
    """A module of examples/, wherever this runs."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def image_step(build: Callable[[], nn.Module], batch: int, autocast: bool, optimizer: str) -> Program:
    """Two training steps of an image classifier."""

    def run() -> None:
        model = build().cuda()
        step = getattr(torch.optim, optimizer)(model.parameters(), lr=0.1)
        for _ in range(2):
            images = torch.randn(batch, 3, 224, 224, device="cuda")
            labels = torch.randint(0, 1000, (batch,), device="cuda")
            with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
                loss = nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            step.step()
            step.zero_grad()

    return run


def encoder_step(dtype: torch.dtype, recompute: bool) -> Program:
    """Two training steps of a Transformer encoder with an embedding and dropout."""

    def run() -> None:
        layer = nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.1, batch_first=True, norm_first=True)
        blocks = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).layers
        model = nn.ModuleList([nn.Embedding(30000, 512), *blocks, nn.Linear(512, 30000)]).to("cuda", dtype)
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            ids = torch.randint(0, 30000, (8, 256), device="cuda")
            x = model[0](ids)
            for block in model[1:-1]:
                x = checkpoint(block, x, use_reentrant=False) if recompute else block(x)
            loss = nn.functional.cross_entropy(model[-1](x).flatten(0, 1), ids.flatten())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()

    return run


def lstm_step() -> None:
    """Two training steps of an LSTM tagger."""
    tagger = [nn.Embedding(5000, 128), nn.LSTM(128, 256, 2, batch_first=True), nn.Linear(256, 50)]
    model = nn.ModuleList(tagger).cuda()
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    for _ in range(2):
        ids = torch.randint(0, 5000, (16, 100), device="cuda")
        states, _ = model[1](model[0](ids))
        nn.functional.cross_entropy(model[2](states).flatten(0, 1), ids.flatten() % 50).backward()
        optimizer.step()
        optimizer.zero_grad()


def cases() -> dict[str, Program]:
    """The programs to compare, by name."""
    vgg, resnet = example("vgg16").vgg16, example("resnet50").resnet50
    return {
        "vgg16 fp32 adamw": image_step(vgg, 32, False, "AdamW"),
        "resnet50 fp32 sgd": image_step(resnet, 64, False, "SGD"),
        "resnet50 amp adam": image_step(resnet, 64, True, "Adam"),
        "encoder fp32": encoder_step(torch.float32, False),
        "encoder bf16": encoder_step(torch.bfloat16, False),
        "encoder fp16 checkpointed": encoder_step(torch.float16, True),
        "lstm fp32": lstm_step,
    }


def measure(run: Program, gpu: str) -> dict[str, Any]:
    """What one case takes on a card."""
    with memlens.simulate(gpu=gpu) as sim:
        run()
        figures = {
            "max_allocated_bytes": sim.allocator.max_allocated_bytes,
            "max_reserved_bytes": sim.allocator.max_reserved_bytes,
        }
    return figures | {"allocations": len(sim.trace.allocations())}


def main() -> None:
    """Print every case on three generations of cards."""
    table = {
        f"{name} on {gpu}": measure(run, gpu)
        for name, run in cases().items()
        for gpu in ("T4", "A100 40GB", "H100")
    }
    json.dump(table, sys.stdout, indent=1, sort_keys=True)
    print()


if __name__ == "__main__":
    main()
