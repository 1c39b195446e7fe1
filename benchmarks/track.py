"""What one `MemTracker.track()` costs with 10,000 live tensors: plain ones, and a model in training.

PYTHONPATH=src python -m benchmarks.track
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


def training() -> object:
    """A network after forward, with AdamW's states: 10,001 storages, 1,818 of them kept by autograd."""
    model = nn.Sequential(*(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(909)))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 16)).sum().backward()
    optimizer.step()
    return model, optimizer, model(torch.ones(2, 16)).sum()


def cost(make: Callable[[], object]) -> dict[str, float]:
    """Milliseconds of a call, wall clock and of this process, when nothing changed since the last."""
    held = make()
    tracker = MemTracker(device="cpu", stream=io.StringIO())
    tracker.track()
    walls, works = [], []
    for _ in range(CALLS):
        wall, work = time.perf_counter(), time.process_time()
        tracker.track()
        walls.append(time.perf_counter() - wall)
        works.append(time.process_time() - work)
    assert tracker.last is not None
    tensors = tracker.last.tensors
    tracker.close()
    del held
    return {
        "storages": tensors,
        "median_wall_ms": sorted(walls)[CALLS // 2] * 1e3,
        "least_wall_ms": min(walls) * 1e3,
        "median_cpu_ms": sorted(works)[CALLS // 2] * 1e3,
    }


if __name__ == "__main__":
    print(json.dumps({make.__name__: cost(make) for make in (plain, training)}, indent=2))
