"""A card calibrated by itself, a simulated one standing in; and what predictions make of it."""

from __future__ import annotations

import json
import pickle
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from benchmarks.gpu import kernels, taken
from benchmarks.gpu.__main__ import everything, measured
from benchmarks.gpu.trainings import TRAININGS, predicted
from torch import nn

import memlens
from memlens.devices import find_gpu, usage
from memlens.devices.calibrated import calibration_file, load_calibrations, save_calibration
from memlens.devices.simulated import DeviceUse
from memlens.errors import RecordError
from memlens.measurement.calibration import calibrate, context_bytes

pytestmark = pytest.mark.torch


@pytest.fixture(autouse=True)
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration directory of the test's own."""
    monkeypatch.setenv("MEMLENS_CONFIG_DIR", str(tmp_path / "config"))
    return tmp_path / "config"


@pytest.mark.parametrize(("card", "workspace"), [("T4", 8_519_680), ("H100 80GB", 33_554_432)])
def test_a_card_tells_its_context_and_workspace(card: str, workspace: int) -> None:
    """A simulated card answers what the catalogue says of it: the differences are taken rightly."""
    known = find_gpu(card)
    with memlens.simulate(card):
        found = calibrate()
    assert found.context_bytes == (known.context_bytes[1],) * 3
    assert found.cublas_workspace_bytes == workspace
    assert (found.memory_bytes, found.compute_capability) == (known.memory_bytes, known.compute_capability)


def test_a_context_that_grows_with_the_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three readings of a process: 100, 140 and 190 MiB beside what PyTorch reserved."""
    readings = iter([100, 140, 190])
    with memlens.simulate("T4"):
        monkeypatch.setattr(
            usage,
            "device_use",
            lambda index, uuid="": DeviceUse(1 << 40, (next(readings) << 20) + torch.cuda.memory_reserved()),
        )
        assert context_bytes(0) == ((100 << 20, 140 << 20, 190 << 20), "")


def test_a_driver_that_hides_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container there is no figure: the reason is kept, and the catalogue's context stays."""
    with memlens.simulate("T4"):
        hidden = DeviceUse(1 << 30, None, "the driver lists processes under other numbers (a container)")
        monkeypatch.setattr(usage, "device_use", lambda index, uuid="": hidden)
        found = calibrate()
    assert found.context_bytes is None
    assert "container" in found.reason
    save_calibration(found)
    known = find_gpu("T4")
    assert known.context_bytes[0] < known.context_bytes[1] < known.context_bytes[2]
    assert "memlens calibrate" in known.note


def test_predictions_use_the_cards_own_figures_and_say_so() -> None:
    """50 MiB more context are 50 MiB more process, and the assumptions name the measurement."""

    def predict() -> memlens.Prediction:
        return memlens.predict(nn.Linear(8, 8), inputs=["8"], gpu="T4")

    before = predict()
    with memlens.simulate("T4"):
        found = calibrate()
    low, expected, high = (size + (50 << 20) for size in found.context_bytes)
    save_calibration(replace(found, context_bytes=(low, expected, high)))
    after = predict()
    assert after.peak.process_bytes - before.peak.process_bytes == 50 << 20
    assert any("memlens calibrate" in assumption.why for assumption in after.assumptions)
    assert not any("memlens calibrate" in assumption.why for assumption in before.assumptions)


def test_other_cards_keep_the_catalogues_figures() -> None:
    """A calibrated T4 says nothing of an A100."""
    before = find_gpu("A100 40GB")
    with memlens.simulate("T4"):
        save_calibration(calibrate())
    assert find_gpu("A100 40GB") == before
    assert list(load_calibrations()) == ["Tesla T4"]


def test_a_file_that_is_none_of_ours(own_directory: Path) -> None:
    """Figures that were measured are not passed over in silence when the file is broken."""
    own_directory.mkdir()
    calibration_file().write_text('{"schema": "memlens.calibration/1", "cards": {"T4": {}}}')
    with pytest.raises(RecordError, match="no calibration that memlens wrote"):
        find_gpu("T4")


def test_scratch_memory_of_one_call() -> None:
    """A temporary of 8 MiB inside a block is what the peak rises above the tensors that stay."""
    with memlens.simulate("T4"):
        with kernels.peak_above() as found:
            kept = torch.empty(1 << 20, device="cuda")
            torch.empty(2 << 20, device="cuda")
        assert found == [8 << 20]
        del kept


def test_the_gpu_benchmark_on_a_card_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Every part answers, and the JSON has a row for each convolution, attention and training."""
    monkeypatch.setattr(kernels, "CONVOLUTIONS", kernels.CONVOLUTIONS[:2])
    with memlens.simulate("T4"):
        found = everything(tmp_path, lambda text: None, TRAININGS[:1])
    assert found["schema"] == "memlens.gpu_measurements/1"
    assert len(found["convolutions"]) == 2 * 3 * 2
    assert {row["kernel"] for row in found["attentions"]} <= set(kernels.BACKENDS.values())
    assert min(row["kept_bytes"] for row in found["attentions"]) >= 0
    (training,) = found["trainings"]
    assert training["measured"]["process_bytes"] > training["measured"]["allocated_bytes"] > 40 << 20
    json.dumps(found)
    import gzip

    (snapshot,) = tmp_path.glob("*.pickle.gz")
    assert pickle.loads(gzip.decompress(snapshot.read_bytes()))["device_traces"]


def test_measurements_go_into_the_catalogue_and_the_accuracy_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A simulated card measures what is predicted of it: 0.00 %, and TOML with its context and its size."""
    monkeypatch.setattr(kernels, "CONVOLUTIONS", ())
    monkeypatch.setattr(kernels, "ATTENTIONS", ())
    with memlens.simulate("T4"):
        found = everything(None, lambda text: None, TRAININGS[:1])
    path = tmp_path / "measured.json"
    path.write_text(json.dumps(found))
    again = taken.read(path)
    toml = tomllib.loads(taken.catalogue(again))
    assert toml["context_of"]["Tesla T4"]["mib"] == [140.875] * 3  # a simulated context does not grow
    assert "gpu" not in toml
    page = taken.section([again])
    assert page.count("| perceptron, SGD |") == 3
    assert page.count("| 0.00 % |") == 3
    assert "**process: median 0.00 % (absolute)" in page
    again["calibration"]["name"] = "Some card of next year"
    (new,) = tomllib.loads(taken.catalogue(again))["gpu"]
    assert (new["memory_bytes"][0], new["multiprocessors"]) == (again["calibration"]["memory_bytes"], 40)
    assert taken.section([]) == ""
    path.write_text("{}")
    with pytest.raises(RecordError, match="schema"):
        taken.read(path)


def test_every_training_runs_on_a_card_that_is_not_there() -> None:
    """What is measured on an A100 of ours is to the byte what is predicted of it, for all fifteen."""
    gpu = find_gpu("A100 40GB")
    predictions = [predicted(training, gpu) for training in TRAININGS]
    with memlens.simulate(gpu):
        readings = [measured(training, None) for training in TRAININGS]
    assert readings == predictions
    assert len(readings) == 15
