"""memlens.summary against torchinfo, side by side in one run: the same models, the same inputs.

    python -m benchmarks.summary_speed

Needs torchvision and torchinfo. Prints the median of several runs, the first one (which imports and fills
tables) apart, and the time for a batch of 1,024 beside that of 1.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import memlens

MODELS = ("resnet50", "vit_b_16")
RUNS = 7


def seconds(call: Callable[[], object]) -> tuple[float, float]:
    """The first call, and the median of those after it."""
    times = []
    for _ in range(RUNS + 1):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return times[0], statistics.median(times[1:])


def main() -> None:
    import torchinfo
    import torchvision

    print(f"{'model':<10}{'tool':<12}{'batch':>6}{'first s':>10}{'median s':>10}")
    for name in MODELS:
        model = torchvision.models.get_model(name, weights=None)

        def ours(batch: int, model: object = model) -> object:
            return memlens.summary(model, input_size=(batch, 3, 224, 224), verbose=0)

        def theirs(model: object = model) -> object:
            return torchinfo.summary(model, input_size=(1, 3, 224, 224), verbose=0)

        calls = (("torchinfo", 1, theirs), *(("memlens", n, lambda n=n: ours(n)) for n in (1, 1024)))
        for tool, batch, call in calls:
            first, median = seconds(call)
            print(f"{name:<10}{tool:<12}{batch:>6}{first:>10.3f}{median:>10.3f}", flush=True)


if __name__ == "__main__":
    main()
