"""LoRA and QLoRA on a T4: the recorded peaks, with transformers, peft and bitsandbytes as they are."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

for library in ("torch", "transformers", "peft", "bitsandbytes"):
    pytest.importorskip(library)

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.accuracy import adapters  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.shared]


@pytest.mark.parametrize("number", [5, 7, 11])
@pytest.mark.filterwarnings("ignore")
def test_peak_allocated_of_adapters(shared: Path, number: int) -> None:
    """Llama-3.2-3B and 1B in nf4, Qwen2.5-1.5B in float16: allocated within 0.1 %, before the step too."""
    row = adapters.rows(shared / "truth")[number]
    peaks = adapters.predicted(row)
    assert peaks.resident == pytest.approx(float(row["resident_before_step_mib"]), rel=0.001)
    assert peaks.allocated == pytest.approx(float(row["peak_allocated_mib"]), rel=0.001)
    assert peaks.reserved == pytest.approx(float(row["peak_reserved_mib"]), rel=0.06)
