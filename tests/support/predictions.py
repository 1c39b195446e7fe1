"""A prediction from a trace made by hand: every number is countable on paper."""

from __future__ import annotations

from memlens.explanation.prediction import Prediction, build_prediction
from memlens.model import Alloc, Assumption, Category, Device, Free, Mark, SegmentAlloc, Site, Trace
from memlens.units import MIB

LAYER = Site("net.py", 12, "forward", "layers.0", "Linear", "addmm")


def training_trace(memory_bytes: int = 64 * MIB) -> Trace:
    """Two steps: 8 MiB of weights, 4 of activations, 8 of gradients, 16 of state from the first step on."""
    events = [
        SegmentAlloc(0, 20 * MIB),
        Alloc(1, 8 * MIB, Category.PARAMETER, Site(module="layers.0", module_type="Linear")),
        Alloc(2, 4 * MIB, Category.ACTIVATION, LAYER),  # step 1: 12
        Alloc(3, 8 * MIB, Category.GRADIENT, LAYER),  # 20
        Free(2),  # 16
        SegmentAlloc(100 * MIB, 20 * MIB),
        Alloc(4, 16 * MIB, Category.OPTIMIZER_STATE),  # 32
        Free(3),  # step 2: 24
        Alloc(5, 4 * MIB, Category.UNKNOWN, LAYER),  # 28
        Alloc(6, 8 * MIB, Category.GRADIENT, LAYER),  # 36: the peak
        Free(5),  # 32
    ]
    marks = [
        Mark("build", 0), Mark("forward", 2, 1), Mark("backward", 3, 1), Mark("optimizer", 5, 1),
        Mark("forward", 7, 2), Mark("backward", 9, 2), Mark("optimizer", 11, 2),
    ]  # fmt: skip
    device = Device("a test card", memory_bytes, (8, 9), (1 * MIB, 2 * MIB, 5 * MIB))
    return Trace("predicted", events, device, marks, assumptions=[Assumption("x", "y", -1 * MIB, 7 * MIB)])


def prediction(memory_bytes: int = 64 * MIB, asked: bool = True) -> Prediction:
    """What is said of that trace on a card of so much memory."""
    scenario = {
        "mode": "train", "batch_size": 4, "inputs": ["3x8x8"], "precision": "fp32", "optimizer": "adam",
        "optimizer_arguments": {"lr": 0.1}, "loss": "cross_entropy", "accumulate": 1,
        "grad_checkpointing": False, "steps": 2, "alloc_conf": None,
    }  # fmt: skip
    return build_prediction(
        training_trace(memory_bytes), target="net.py:Net", scenario=scenario, operators=9,
        elapsed_seconds=0.5, versions=("0.1.0", "2.13.0"), asked_for_a_card=asked,
    )  # fmt: skip
