"""The figures of a prediction, from traces made by hand: every number is countable on paper."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.support.predictions import prediction, training_trace

from memlens.explanation.prediction import Card, build_peak, build_prediction, to_dict, verdict
from memlens.model import Alloc, Assumption, Device, Mark, Trace
from memlens.units import GIB, MIB

CONTRACT = [
    "schema", "target", "scenario", "device", "fits", "headroom_bytes", "peak", "breakdown_at_peak", "steps",
    "top_modules", "assumptions", "operators", "allocations", "elapsed_seconds", "memlens", "torch",
    "top_holders", "growth", "notes",
]  # fmt: skip


def test_the_process_is_reserved_plus_context() -> None:
    """40 MiB in two segments and 2 MiB of context; 36 MiB are allocated at the peak."""
    peak = prediction().peak
    assert (peak.allocated_bytes, peak.reserved_bytes, peak.process_bytes) == (36 * MIB, 40 * MIB, 42 * MIB)
    assert (peak.phase, peak.step, peak.module, peak.operator) == ("backward", 2, "layers.0", "addmm")
    assert peak.line == "net.py:12"


def test_the_assumptions_span_the_interval() -> None:
    """-1 and +7 MiB of the simulation's, -1 and +3 of the context's."""
    found = prediction()
    assert (found.peak.low_process_bytes, found.peak.high_process_bytes) == (40 * MIB, 52 * MIB)
    assert [(a.low_bytes, a.high_bytes) for a in found.assumptions] == [
        (-1 * MIB, 7 * MIB),
        (-1 * MIB, 3 * MIB),
    ]
    assert (found.peak.low_reserved_bytes, found.peak.high_reserved_bytes) == (39 * MIB, 47 * MIB)
    assert (found.peak.low_allocated_bytes, found.peak.high_allocated_bytes) == (35 * MIB, 43 * MIB)


def test_what_moves_reserved_memory_need_not_move_what_is_allocated() -> None:
    """A workspace that leaves holes: up to 6 MiB more reserved, and only 1 MiB more allocated."""
    holes = Assumption("workspaces", "chosen on the card", 0, 6 * MIB, allocated_bytes=(0, 1 * MIB))
    trace = training_trace(64 * MIB)
    trace.assumptions = [holes]
    peak = build_peak(trace, trace.timeline(), 0)
    assert (peak.high_reserved_bytes, peak.high_allocated_bytes) == (46 * MIB, 37 * MIB)
    assert peak.high_process_bytes == (46 + 5) * MIB


def test_the_breakdown_sums_to_the_process() -> None:
    """8 parameters, 8 gradients, 16 state, 4 that nobody named, 4 reserved and unused, 2 context."""
    found = prediction()
    assert sum(found.breakdown.values()) == found.peak.process_bytes
    assert {str(k): v // MIB for k, v in found.breakdown.items() if v} == {
        "parameters": 8, "gradients": 8, "optimizer_state": 16, "temporaries": 4, "fragmentation": 4,
        "context": 2,
    }  # fmt: skip


def test_steps_have_their_own_peaks() -> None:
    """The state appears in step 1 and moves the peak in step 2."""
    first, second = prediction().steps
    assert {k: v // MIB for k, v in to_dict(first).items() if k != "step"} == {
        "start_allocated_bytes": 8, "forward_peak_bytes": 12, "backward_peak_bytes": 20,
        "optimizer_peak_bytes": 32, "peak_allocated_bytes": 32, "peak_reserved_bytes": 40,
        "end_allocated_bytes": 32,
    }  # fmt: skip
    assert (second.start_allocated_bytes, second.peak_allocated_bytes) == (32 * MIB, 36 * MIB)
    assert second.end_allocated_bytes == 32 * MIB


def test_a_phase_that_is_not_there_has_no_figure() -> None:
    """Inference has no backward: null, not 0."""
    trace = Trace("predicted", [Alloc(1, 512)], Device("x"), [Mark("forward", 0, 1)])
    found = build_prediction(
        trace, target="x", scenario={}, operators=1, elapsed_seconds=0.1, versions=("", ""),
        asked_for_a_card=False,
    )  # fmt: skip
    assert found.steps[0].backward_peak_bytes is None
    assert found.peak.process_bytes == 512


def test_modules_are_ranked_by_what_they_hold() -> None:
    """The layer holds its weights, its gradient and its output; the state belongs to no module."""
    (holder,) = prediction().top_modules
    assert (holder.module, holder.type, holder.bytes) == ("layers.0", "Linear", 20 * MIB)


def test_the_json_is_the_contract() -> None:
    """Exactly the keys that other programs rely on, in every part."""
    found = prediction().to_dict()
    assert list(found) == CONTRACT
    assert list(found["device"]) == ["name", "memory_bytes", "compute_capability"]
    assert list(found["peak"]) == [
        "allocated_bytes", "low_allocated_bytes", "high_allocated_bytes",
        "reserved_bytes", "low_reserved_bytes", "high_reserved_bytes",
        "process_bytes", "low_process_bytes", "high_process_bytes",
        "phase", "step", "module", "operator", "line",
    ]  # fmt: skip
    assert set(found["breakdown_at_peak"]) == {
        "parameters", "buffers", "gradients", "optimizer_state", "activations", "inputs", "temporaries",
        "workspace", "communication", "fragmentation", "context",
    }  # fmt: skip
    assert list(found["steps"][0]) == [
        "step", "start_allocated_bytes", "forward_peak_bytes", "backward_peak_bytes", "optimizer_peak_bytes",
        "peak_allocated_bytes", "peak_reserved_bytes", "end_allocated_bytes",
    ]  # fmt: skip
    assert list(found["top_modules"][0]) == ["module", "type", "bytes"]
    assert list(found["assumptions"][0]) == [
        "what", "why", "low_bytes", "high_bytes", "low_allocated_bytes", "high_allocated_bytes",
    ]  # fmt: skip
    assert found["schema"] == "memlens.prediction/1"


def test_the_verdict_is_one_line() -> None:
    """Fits with room; fits unless the worst is true; does not fit; nobody asked."""
    assert (
        verdict(prediction(64 * MIB)) == "fits a test card: needs 42.00 MiB of 64.00 MiB, 22.00 MiB to spare"
    )
    tight = prediction(45 * MIB)
    assert tight.fits
    assert tight.may_not_fit
    assert verdict(tight) == ("may not fit a test card: needs 42.00 MiB of 45.00 MiB, but 52.00 MiB at worst")
    short = prediction(40 * MIB)
    assert (short.fits, short.headroom_bytes) == (False, -2 * MIB)
    assert verdict(short) == "does not fit a test card: needs 42.00 MiB of 40.00 MiB, 2.00 MiB short"
    nobody = prediction(asked=False)
    assert (nobody.fits, nobody.headroom_bytes) == (None, None)
    assert "cards" in nobody.to_dict()


def test_an_empty_run_is_all_zero() -> None:
    """A model without a byte is no error."""
    empty = build_prediction(
        Trace("predicted", device=Device("x", GIB)), target="x", scenario={}, operators=0,
        elapsed_seconds=0.0, versions=("", ""), asked_for_a_card=True,
    )  # fmt: skip
    assert empty.peak.process_bytes == 0
    assert empty.fits
    assert replace(empty, fits=None).to_dict()["cards"] == []


@pytest.mark.parametrize(
    ("process", "high", "answer"), [(8, 8, "fits"), (8, 9, "may not fit"), (9, 9, "does not fit")]
)
def test_the_answer_of_a_card(process: int, high: int, answer: str) -> None:
    """A card of 8 bytes fits a process exactly; the worst case or the expected one may be too large."""
    assert Card("a card", 8, process, high).answer == answer
