"""Whole training steps with a recorded history: the medium Transformer on an A100, ResNet-50 on a V100."""

from __future__ import annotations

import gzip
import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn

import memlens
from benchmarks.accuracy.job import MIB, Job, Predicted, Table, stated

EXAMPLES = Path(__file__).parents[2] / "examples"
# MiB allocated before the step, at its peak, after it, and reserved, read from the recorded snapshots
NAMES = ("before the step", "peak", "after the step", "reserved")
PRECISION = {False: "float32", True: "bfloat16 autocast"}
TRANSFORMER = {
    (128, False): (4867.25, 6696.41, 6501.09, 6900.0),
    (512, True): (4867.95, 11859.40, 6521.33, 12074.0),
}


def module_from(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def jobs(truth: Path) -> list[Job]:
    """The medium Transformer at two lengths, and ResNet-50."""
    found = [
        Job("programs", f"Transformer, 24 layers, {tokens} tokens, {PRECISION[autocast]}", "Transformer",
            (str(truth), tokens, autocast), dict(zip(NAMES, measured, strict=True)))
        for (tokens, autocast), measured in TRANSFORMER.items()
    ]  # fmt: skip
    recorded = truth / "traces/resnet50_v100_train_batch32.pt.trace.json.gz"
    above = {"peak above the start": recorded_peak(recorded) / MIB}
    return [*found, Job("programs", "ResNet-50, batch 32", "ResNet-50", None, above)]


def predict(job: Job) -> dict[str, Predicted]:
    return resnet50() if job.row is None else transformer(*job.row)


def transformer(truth: str, tokens: int, autocast: bool) -> dict[str, Predicted]:
    """A step after five others, as `transformer_lm.py` beside the recordings runs it."""
    train = module_from(Path(truth) / "transformer_lm.py").train
    with memlens.simulate(gpu="A100 40GB") as sim:
        predicted = train(tokens, autocast=autocast)
    return stated(sim.trace, dict(zip(NAMES, predicted, strict=True)))


def resnet50() -> dict[str, Predicted]:
    """Batch 32 at 224 pixels, SGD with momentum, cudnn.benchmark; the gradients stay between steps."""
    build = module_from(EXAMPLES / "resnet50.py").resnet50
    with memlens.simulate(gpu="V100 16GB") as sim:
        torch.backends.cudnn.benchmark = True
        model, criterion = build().cuda(), nn.CrossEntropyLoss()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, foreach=False)
        above = 0
        for _ in range(3):
            torch.cuda.reset_peak_memory_stats()
            start = torch.cuda.memory_allocated()
            step(model, criterion, optimizer)
            above = torch.cuda.max_memory_allocated() - start
    return stated(sim.trace, {"peak above the start": above / MIB})


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


PROGRAMS = Table(
    "programs", "Training steps",
    "Whole steps with a recorded history: a Transformer written in plain torch on an A100, as CUDA snapshots "
    "show it, and torchvision's ResNet-50 on a V100 of 2021, as the profiler showed it.",
    jobs, predict,
)  # fmt: skip
