"""LoRA and inference with bfloat16 weights on an A100: recorded peaks of Llama 2, phi and StableLM."""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median

import pytest

pytest.importorskip("torch")

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.accuracy import litgpt

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.shared]


def test_peaks_of_lora_and_inference(shared: Path) -> None:
    """The rows in bfloat16: 1 % in the median, none more than 2.5 % off, hardly one too low."""
    errors = [error for _, error in litgpt.rows(shared / "truth")]
    assert len(errors) == 8
    assert median(map(abs, errors)) < 0.012
    assert max(map(abs, errors)) < 0.025
    assert min(errors) > -0.005
