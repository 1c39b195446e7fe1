"""Measure what no CPU can know, in under eight minutes, into one JSON file.

    PYTHONPATH=src python -m benchmarks.gpu -o measured.json [--snapshots FOLDER]

Context and workspaces, cuDNN's scratch memory over a grid of convolutions, the kernels of attention, and the
memory of fifteen trainings beside what memlens predicts of them. Without a GPU it says so and ends with 0.
`python -m benchmarks.gpu.taken measured.json` turns it into lines for the catalogue and the accuracy page.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import json
import os
import pickle
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

import memlens
from benchmarks.gpu.kernels import attentions, convolutions
from benchmarks.gpu.trainings import TRAININGS, Training, predicted, two_steps
from memlens.devices import Gpu, custom_gpu, find_gpu, usage
from memlens.errors import UsageError
from memlens.measurement.calibration import calibrate
from memlens.measurement.gap import device_uuid

SECONDS = 8 * 60
EVENTS = 200_000


def card() -> Gpu:
    """The catalogue's card for the one in this machine; an unknown one by its memory."""
    properties = torch.cuda.get_device_properties(0)
    size = f"{round(properties.total_memory / 2**30)}GB"
    for name in (f"{properties.name} {size}", properties.name):
        try:
            return find_gpu(name)
        except UsageError:
            continue
    return custom_gpu(properties.total_memory)


def measured(training: Training, snapshot: Path | None) -> dict[str, int | None]:
    """What the card's own counters say; the recorded events go to `snapshot`, without stacks."""
    fresh()
    if snapshot is not None:
        torch.cuda.memory._record_memory_history(context=None, max_entries=EVENTS)
    try:
        torch.cuda.reset_peak_memory_stats()
        two_steps(training)
        torch.cuda.synchronize()
        use = usage.device_use(0, device_uuid(0))
        if snapshot is not None:
            snapshot.write_bytes(gzip.compress(pickle.dumps(torch.cuda.memory._snapshot(), protocol=4)))
    finally:
        if snapshot is not None:
            torch.cuda.memory._record_memory_history(enabled=None)
    return {
        "allocated_bytes": int(torch.cuda.max_memory_allocated()),
        "reserved_bytes": int(torch.cuda.max_memory_reserved()),
        # reserved memory is not given back before the end, so this is the process at its highest
        "process_bytes": use.process_bytes,
    }


def fresh() -> None:
    """As at the start of a program: no cached segment, no workspace of an earlier training."""
    gc.collect()
    clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
    if clear is not None:
        clear()
    torch.cuda.empty_cache()


def cost_of_on_oom(training: Training, rounds: int = 5) -> dict[str, float]:
    """Seconds of a training without and with `memlens.on_oom()` and its history; each the best of some."""

    def best() -> float:
        times = []
        for _ in range(rounds):
            fresh()
            torch.cuda.synchronize()
            started = time.perf_counter()
            two_steps(training)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - started)
        return min(times)

    without = best()
    with memlens.on_oom(None):
        listening = best()
    return {"without_seconds": without, "with_seconds": listening, "share": listening / without - 1}


def compare_trainings(
    gpu: Gpu,
    trainings: Sequence[Training],
    predictions: list[dict[str, int]],
    folder: Path | None,
    deadline: float,
) -> list[dict[str, Any]]:
    """Each training on the card, beside its prediction; what there was no time for says so."""
    rows = []
    for training, prediction in zip(trainings, predictions, strict=True):
        row: dict[str, Any] = {"name": training.name, "gpu": gpu.name, "predicted": prediction}
        if time.monotonic() > deadline:
            row["skipped"] = "no time was left"
        else:
            name = training.name.replace(",", "").replace(" ", "_")
            try:
                row["measured"] = measured(training, folder / f"{name}.pickle.gz" if folder else None)
            except RuntimeError as error:  # out of memory, or what this card does not know
                row["skipped"] = str(error).splitlines()[0].split(". ")[0]
        rows.append(row)
    return rows


def everything(
    folder: Path | None, say: Callable[[str], object], trainings: Sequence[Training] = TRAININGS
) -> dict[str, Any]:
    """All of it; the predictions first, since a simulation takes torch.cuda's place."""
    deadline = time.monotonic() + SECONDS
    gpu = card()
    say(f"predictions for {gpu.name}")
    # a simulation cannot be made inside another, which stands in for the card in our own tests
    inside = torch.cuda.get_device_properties.__module__.startswith("memlens")
    predictions = [{} if inside else predicted(training, gpu) for training in trainings]
    calibration = calibrate(say)  # before anything else loads kernels
    say("convolutions")
    grid = list(convolutions())
    fresh()
    say("attention")
    kernels = list(attentions())
    say("on_oom")
    oom = cost_of_on_oom(trainings[-1])
    say("trainings")
    return {
        "schema": "memlens.gpu_measurements/1",
        "calibration": asdict(calibration),
        "multiprocessors": int(torch.cuda.get_device_properties(0).multi_processor_count),
        "cudnn": torch.backends.cudnn.version(),
        "convolutions": grid,
        "attentions": kernels,
        "on_oom": oom,
        "trainings": compare_trainings(gpu, trainings, predictions, folder, deadline),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("-o", "--output", type=Path, default=Path("gpu_measurements.json"))
    parser.add_argument("--snapshots", type=Path, help="also keep each training's recorded events here")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("skipped: no CUDA device answers", file=sys.stderr)
        return 0
    os.environ["MEMLENS_CONFIG_DIR"] = os.devnull  # the catalogue is what is to be checked
    if options.snapshots:
        options.snapshots.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    found = everything(options.snapshots, lambda text: print(text, file=sys.stderr))
    found["seconds"] = round(time.monotonic() - started, 1)
    options.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(f"wrote {options.output} after {found['seconds']} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
