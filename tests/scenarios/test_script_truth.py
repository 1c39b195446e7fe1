"""The recorded Transformer, run from a script file: its figures are those of the code under `simulate`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

pytest.importorskip("torch")

import memlens
from memlens.scenarios.script.predict_script import Script, predict_script

pytestmark = [pytest.mark.torch, pytest.mark.shared, pytest.mark.slow]
MIB = 2**20


def test_a_script_gives_the_same_figures(shared: Path, tmp_path: Path) -> None:
    """Peak allocated and reserved of the medium Transformer at context 128 are equal to the byte."""
    source = shared / "truth" / "transformer_lm.py"
    spec = importlib.util.spec_from_file_location("transformer_lm", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with memlens.simulate(gpu="A100 40GB") as sim:
        module.train(128)
    script = tmp_path / "train.py"
    script.write_text(source.read_text() + "\nprint(train(128))\n")
    prediction = predict_script(Script(str(script), steps=6), gpu="A100 40GB")
    assert prediction.peak.allocated_bytes == sim.trace.timeline().peak_allocated_bytes
    assert prediction.peak.reserved_bytes == sim.trace.timeline().peak_reserved_bytes
    assert prediction.peak.allocated_bytes / MIB == pytest.approx(6696.41, rel=0.005)
