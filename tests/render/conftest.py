"""A run that the tests of drawings share."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from memlens.model import Mark, Process, Sample, Span, Trace
from memlens.units import MIB

SECOND = 1_000_000


def make_run() -> Trace:
    """A program of 10, then 20 MiB over four seconds, with a child of 20 MiB in the third."""
    trace = Trace("measured", metadata={"command": "train.py", "exit_code": 0, "gpu": "no driver"})
    trace.events = [
        Sample(0, 7, 10 * MIB), Sample(2 * SECOND, 7, 20 * MIB),
        Sample(2 * SECOND, 8, 20 * MIB), Sample(4 * SECOND, 7, 10 * MIB),
    ]  # fmt: skip
    trace.processes = [
        Process(7, "python train.py", None, 0, 4 * SECOND, exit_code=0),
        Process(8, "python worker.py", 7, 2 * SECOND, 3 * SECOND),
    ]
    trace.marks = [Mark("loaded", 1, time_us=1 * SECOND)]
    trace.spans = [
        Span("__main__.load", 0, 1 * SECOND, 0, 10 * MIB, 0, 7),
        Span("__main__.step", 2 * SECOND, 3 * SECOND, 10 * MIB, 20 * MIB, 0, 7),
        Span("__main__.step", 3 * SECOND, 4 * SECOND, 20 * MIB, 10 * MIB, 0, 7),
    ]
    return trace


@pytest.fixture
def run() -> Callable[[], Trace]:
    """Makes the run above, a new one at each call."""
    return make_run
