"""The medium Transformer against what a real A100's snapshots recorded."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import memlens  # noqa: E402
from memlens.model import Alloc, Trace  # noqa: E402
from memlens.records import load  # noqa: E402
from memlens.simulation import Simulation  # noqa: E402
from memlens.units import MIB  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.shared]


@pytest.fixture
def workload(shared: Path, monkeypatch: pytest.MonkeyPatch):
    """The module whose `train` is the recorded program."""
    monkeypatch.syspath_prepend(str(shared / "truth"))
    monkeypatch.setitem(sys.modules, "transformer_lm", None)
    del sys.modules["transformer_lm"]
    import transformer_lm

    return transformer_lm


def off(predicted: float, real: float) -> float:
    return abs(predicted / real - 1)


def sizes(trace: Trace, start: int = 0, end: int | None = None) -> Counter[int]:
    """The allocations of a trace as a multiset of sizes, rounded as the allocator rounds."""
    found = (e.requested or e.bytes for e in trace.events[start:end] if isinstance(e, Alloc))
    return Counter((size + 511) // 512 * 512 for size in found)


def record(sim: Simulation, workload, context: int, autocast: bool) -> tuple[list[float], int]:
    """Run the workload; its four figures, and the event at which the recorded step began."""
    begun = []
    reset = torch.cuda.reset_peak_memory_stats

    def note(device=None) -> None:
        begun.append(len(sim.events))
        reset(device)

    torch.cuda.reset_peak_memory_stats = note
    try:
        return workload.train(context, autocast=autocast), begun[-1]
    finally:
        torch.cuda.reset_peak_memory_stats = reset


@pytest.mark.parametrize(
    ("context", "autocast", "real", "tolerance"),
    [
        (128, False, (4867.25, 6696.41, 6501.09, 6900), 0.001),
        (512, True, (4867.95, 11859.40, 6521.33, 12074), 0.003),
    ],
)
def test_a_training_step_takes_what_the_real_card_took(
    workload, context: int, autocast: bool, real: tuple[float, ...], tolerance: float
) -> None:
    """Allocated before, at the peak and after within 0.1 % (0.3 % under autocast), reserved within 2 %."""
    with memlens.simulate(gpu="A100 40GB") as sim:
        (start, peak, end, reserved), _ = record(sim, workload, context, autocast)
    assert off(start, real[0]) < tolerance
    assert off(peak, real[1]) < tolerance
    assert off(end, real[2]) < tolerance
    assert off(reserved, real[3]) < 0.02


def test_the_same_allocations_were_made(workload, shared: Path) -> None:
    """Of the multiset of allocation sizes of the real step at least 99 % are the same."""
    recording = load(shared / "truth/snapshots/transformer_medium_train_ctx128.pickle")
    real = sizes(recording, recording.metadata["baseline_events"])
    with memlens.simulate(gpu="A100 40GB") as sim:
        _, begun = record(sim, workload, 128, False)
    mine = sizes(sim.trace, begun)
    assert (real & mine).total() / max(real.total(), mine.total()) > 0.99


def test_inference_takes_what_the_real_card_took(workload) -> None:
    """In inference mode at context 256 the peak is within 0.1 % of 1,712.55 MiB.

    The recorded program's forward kept the embeddings in a variable of their own (their 4 MiB are alive at
    the recorded peak), so this one does too.
    """

    class Recorded(workload.TransformerLM):
        def forward(self, ids):
            embedded = self.emb[ids, :]
            x = embedded
            for layer in self.layers:
                x = layer(x)
            return self.head(self.norm(x))

    with memlens.simulate(gpu="A100 40GB") as sim:
        model = Recorded(context=256).to("cuda").eval()
        ids = torch.randint(0, 10000, (4, 256), device="cuda")
        for _ in range(6):
            with torch.inference_mode():
                model(ids)
        assert off(torch.cuda.max_memory_allocated() / MIB, 1712.55) < 0.001
    sim.trace.check()
