"""LoRA and QLoRA on a T4: the recorded peaks, with transformers, peft and bitsandbytes as they are."""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median

import pytest

for library in ("torch", "transformers", "peft", "bitsandbytes"):
    pytest.importorskip(library)

REPOSITORY = Path(__file__).parents[2]
sys.path.insert(0, str(REPOSITORY))
from benchmarks.accuracy import adapters  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.shared, pytest.mark.filterwarnings("ignore")]


def signed(row: dict[str, str], mib: float, figure: str) -> float:
    return mib / float(row[figure]) - 1


def test_peaks_of_adapters(shared: Path) -> None:
    """Allocated within 0.4 %; reserved 1.4 % in the median, at worst 5.1 % too low and 17 % too high."""
    allocated, reserved, process = [], [], []
    for row in adapters.rows(shared / "truth"):
        figures = adapters.figures(row, race=False)
        allocated.append(signed(row, figures["allocated"].mib, "peak_allocated_mib"))
        reserved.append(signed(row, figures["reserved"].mib, "peak_reserved_mib"))
        process.append(signed(row, figures["device"].mib, "process_mib"))
    assert len(allocated) == 12
    assert median(map(abs, allocated)) < 0.0005
    assert (min(allocated), max(allocated)) == pytest.approx((-0.0039, 0.0005), abs=0.0003)
    assert median(map(abs, reserved)) == pytest.approx(0.0134, abs=0.002)
    assert median(map(abs, process)) == pytest.approx(0.0128, abs=0.002)
    assert (min(reserved), max(reserved)) == pytest.approx((-0.0507, 0.1686), abs=0.005)
    assert sum(error < -0.025 for error in reserved) == 1


def test_the_race_brackets_what_was_reserved(shared: Path) -> None:
    """Qwen2.5-Coder-1.5B and Llama-3.2-1B: 12.6 % and 2.4 % too low to 1.0 % and 16.9 % too high."""
    rows = adapters.rows(shared / "truth")
    for number, lowest, highest in ((3, -0.1262, 0.0104), (7, -0.0237, 0.1686)):
        _, low, high = adapters.figures(rows[number])["reserved"]
        ends = [signed(rows[number], mib, "peak_reserved_mib") for mib in (low, high)]
        assert ends == pytest.approx([lowest, highest], abs=0.003)


@pytest.mark.parametrize("number", [1, 6, 11])
def test_every_phase_of_a_step(shared: Path, number: int) -> None:
    """Mistral 7B and Llama-3.2-3B in nf4, Qwen2.5-1.5B in float16: each phase within 0.1 %."""
    row = adapters.rows(shared / "truth")[number]
    peaks = adapters.predicted(row)
    assert peaks.resident == pytest.approx(float(row["resident_before_step_mib"]), rel=0.001)
    for phase in ("forward", "backward", "optimizer"):
        assert getattr(peaks, phase) == pytest.approx(float(row[f"peak_{phase}_mib"]), rel=0.001), phase
