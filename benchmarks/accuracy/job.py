"""A job: one program whose memory was recorded, and what is predicted for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

MIB = 2**20
RAN_OUT = "out of memory"  # a figure: the card's memory, which the prediction should exceed


class Predicted(NamedTuple):
    """MiB: what is expected, and the interval that is stated with it."""

    mib: float
    low_mib: float
    high_mib: float


class Job(NamedTuple):
    """One recorded program: which table it is from, its row, and its measured figures in MiB.

    `left_out` says why it is not compared; `family` is its colour in the drawn figure.
    """

    table: str
    key: str
    family: str
    row: Any
    measured_mib: dict[str, float]
    left_out: str = ""


class Table(NamedTuple):
    """A table of recorded figures.

    `predict` gets a job and gives its figures by name: at least those that were measured. `model` builds what
    other estimators are asked about: the model and its inputs, on whatever device is the default. `needs` are
    packages; `step_mib` is the step in which the figures were published.
    """

    name: str
    title: str
    text: str
    jobs: Callable[[Path], list[Job]]
    predict: Callable[[Job], dict[str, Predicted]]
    needs: tuple[str, ...] = ()
    model: Callable[[Job], Any] | None = None
    optimizer: str = "sgd"
    step_mib: float = 0.01


def stated(trace: Any, figures: dict[str, float]) -> dict[str, Predicted]:
    """Allocated figures of a simulation in MiB with the interval that its assumptions state, at its end."""
    ranges = [assumption.allocated_range for assumption in trace.assumptions]
    low = sum(below for below, _ in ranges) / MIB
    high = sum(above for _, above in ranges) / MIB
    return {name: Predicted(mib, mib + low, mib + high) for name, mib in figures.items()}


def of_prediction(prediction: Any) -> dict[str, Predicted]:
    """Allocated, reserved and the whole process of a `memlens.Prediction`, each with its own interval."""
    peak = prediction.peak
    figures = {
        "allocated": (peak.allocated_bytes, peak.low_allocated_bytes, peak.high_allocated_bytes),
        "reserved": (peak.reserved_bytes, peak.low_reserved_bytes, peak.high_reserved_bytes),
        "device": (peak.process_bytes, peak.low_process_bytes, peak.high_process_bytes),
    }
    return {name: Predicted(*(size / MIB for size in sizes)) for name, sizes in figures.items()}
