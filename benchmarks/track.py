"""What one `MemTracker.track()` costs with 10,000 live tensors: plain ones, and a model in training.

PYTHONPATH=src python -m benchmarks.track

In training it is called after forward, after backward and after the optimizer's step, each of which replaces
thousands of them.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable

import torch
from torch import nn

from memlens.integrations.tracker import MemTracker

CALLS = 25


def plain() -> object:
    """10,000 tensors in a list."""
    return [torch.empty(16) for _ in range(10_000)]


def network() -> tuple[nn.Module, torch.optim.Optimizer]:
    """909 layers with 1,818 parameters; after a step 9,092 storages, 910 of them kept by autograd."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(909)))
    return model, torch.optim.AdamW(model.parameters())


def unchanged() -> object:
    """The network after forward, with AdamW's states."""
    model, optimizer = network()
    model(torch.ones(2, 16)).sum().backward()
    optimizer.step()
    return model, optimizer, model(torch.ones(2, 16)).sum()


def milliseconds(tracker: MemTracker) -> tuple[float, float]:
    """One call, on the wall clock and in this process's own time."""
    wall, work = time.perf_counter(), time.process_time()
    tracker.track()
    return (time.perf_counter() - wall) * 1e3, (time.process_time() - work) * 1e3


def told(tracker: MemTracker, calls: list[tuple[float, float]]) -> dict[str, float]:
    walls, works = (sorted(times) for times in zip(*calls, strict=True))
    assert tracker.last is not None
    return {
        "storages": tracker.last.tensors,
        "median_wall_ms": round(walls[len(walls) // 2], 1),
        "least_wall_ms": round(walls[0], 1),
        "median_cpu_ms": round(works[len(works) // 2], 1),
    }


def standing(make: Callable[[], object]) -> dict[str, float]:
    """A call when nothing changed since the last."""
    held = make()
    tracker = MemTracker(device="cpu", stream=io.StringIO())
    tracker.track()
    found = told(tracker, [milliseconds(tracker) for _ in range(CALLS)])
    tracker.close()
    del held
    return found


def training() -> dict[str, dict[str, float]]:
    """Calls between the parts of a step."""
    model, optimizer = network()
    tracker = MemTracker(device="cpu", stream=io.StringIO())
    calls: dict[str, list[tuple[float, float]]] = {"forward": [], "backward": [], "step": []}
    for _ in range(CALLS):
        loss = model(torch.ones(2, 16)).sum()
        calls["forward"].append(milliseconds(tracker))
        loss.backward()
        calls["backward"].append(milliseconds(tracker))
        optimizer.step()
        calls["step"].append(milliseconds(tracker))
        optimizer.zero_grad()
    found = {f"after {part}": told(tracker, times[1:]) for part, times in calls.items()}
    tracker.close()
    return found


if __name__ == "__main__":
    still = {make.__name__: standing(make) for make in (plain, unchanged)}
    print(json.dumps(still | training(), indent=2))
