"""Whole training steps with a recorded history: the medium Transformer on an A100, ResNet-50 on a V100."""

from __future__ import annotations

import gzip
import importlib.util
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

import memlens

MIB = 2**20
EXAMPLES = Path(__file__).parents[2] / "examples"
# MiB allocated before the step, at its peak, after it, and reserved, read from the recorded snapshots
TRANSFORMER = {
    (128, False): (4867.25, 6696.41, 6501.09, 6900.0),
    (512, True): (4867.95, 11859.40, 6521.33, 12074.0),
}


@dataclass(frozen=True)
class Figure:
    """One figure of a program: measured and predicted, in MiB."""

    program: str
    what: str
    measured_mib: float
    predicted_mib: float

    @property
    def error(self) -> float:
        return self.predicted_mib / self.measured_mib - 1


def module_from(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def transformer(truth: Path) -> Iterator[Figure]:
    """A step after five others, as `transformer_lm.py` beside the recordings runs it."""
    train = module_from(truth / "transformer_lm.py").train
    for (context, autocast), measured in TRANSFORMER.items():
        with memlens.simulate(gpu="A100 40GB"):
            predicted = train(context, autocast=autocast)
        program = (
            f"Transformer, 24 layers, {context} tokens, {'bfloat16 autocast' if autocast else 'float32'}"
        )
        names = ("before the step", "peak", "after the step", "reserved")
        for name, real, mine in zip(names, measured, predicted, strict=True):
            yield Figure(program, name, real, mine)


def resnet50(truth: Path) -> Iterator[Figure]:
    """Batch 32 at 224 pixels, SGD with momentum, cudnn.benchmark; the gradients stay between steps."""
    recorded = truth / "traces/resnet50_v100_train_batch32.pt.trace.json.gz"
    build = module_from(EXAMPLES / "resnet50.py").resnet50
    with memlens.simulate(gpu="V100 16GB"):
        torch.backends.cudnn.benchmark = True
        model, criterion = build().cuda(), nn.CrossEntropyLoss()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, foreach=False)
        above = 0
        for _ in range(3):
            torch.cuda.reset_peak_memory_stats()
            start = torch.cuda.memory_allocated()
            step(model, criterion, optimizer)
            above = torch.cuda.max_memory_allocated() - start
    yield Figure("ResNet-50, batch 32", "peak above the start", recorded_peak(recorded) / MIB, above / MIB)


def step(model: nn.Module, criterion: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    images = torch.empty(32, 3, 224, 224).cuda()
    labels = torch.zeros(32, dtype=torch.int64).cuda()
    loss = criterion(model(images), labels)
    optimizer.zero_grad(set_to_none=False)
    loss.backward()
    optimizer.step()


def recorded_peak(path: Path) -> int:
    """The most bytes above the start: the trace notes every allocation of the device as a change."""
    with gzip.open(path) as file:
        events: list[dict[str, Any]] = json.load(file)["traceEvents"]
    changes = [e for e in events if e.get("name") == "[memory]" and e["args"].get("Device Type") == 1]
    now = peak = 0
    for event in sorted(changes, key=lambda event: event["ts"]):
        now += event["args"]["Bytes"]
        peak = max(peak, now)
    return peak
