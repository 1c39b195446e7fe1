"""Every script in examples/scripts is predicted as it is, in seconds and without a network."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

from memlens.explanation.prediction import Prediction
from memlens.scenarios.script.predict_script import Script, predict_script
from memlens.scenarios.script.preload import libraries
from memlens.scenarios.script.ranks import TORCHRUN

pytestmark = [pytest.mark.torch, pytest.mark.slow]
FOLDER = Path(__file__).parents[2] / "examples" / "scripts"
# those in a folder of their own have modules of their own
PATHS = {path.stem: path for path in (*FOLDER.glob("*.py"), FOLDER / "own_modules" / "own_modules.py")}
SECONDS = 30.0  # what each may take, libraries' imports included
# what each must say of itself, beside that it was stopped
SAYS = {
    "plain_loop": "data loaders run without workers",
    "detection": "is taken to keep all 256 elements",
    "nano_gpt": "torch.compile is taken as eager code",
    "rnn_packed": "cuDNN keeps gates, cells and outputs",
    "tensorboard_metrics": "is taken to be 1.0",
    "timm_style": "timm's pretrained weights are taken as random",
    "hf_trainer": "data loaders run without workers",
    "checked_values": "is taken to be True",
    "terminal_bar": "the question 'Name of this run:' is answered with ''",
    "spawned_ranks": "of the processes that run train, the first is run",
    "traced_model": "torch.jit.trace is taken as eager code",
    "fetched_names": "is answered with 1000 names",
}
# optimizer that stepped, as the result names it
OPTIMIZER = {
    "gan": "Adam",
    "plain_loop": "SGD",
    "qlora_4bit": "PagedAdamW8bit",
    "timm_style": "Lamb",
    "torchvision_style": "SGD",
}


def missing(path: Path) -> list[str]:
    """Libraries that a script imports and that are not installed."""
    tops = {name.partition(".")[0] for name, _ in libraries(path, path.parent, set())}
    tops |= {"torchvision"} if "timm" in tops else set()
    tops |= {"accelerate"} if path.stem == "hf_trainer" else set()  # transformers' Trainer wants it
    tops |= {"tensorboard"} if "torch.utils.tensorboard" in path.read_text() else set()
    return sorted(top for top in tops if importlib.util.find_spec(top) is None)


def predicted(name: str, **options: object) -> Prediction:
    path = PATHS[name]
    if lacking := missing(path):
        pytest.skip(f"needs {', '.join(lacking)}")
    return predict_script(Script(str(path), **options), gpu="A100 40GB")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(PATHS))
def test_an_example_runs_as_it_is(name: str) -> None:
    """Two optimizer steps were seen, sums close, the line at the peak is known, and it took seconds."""
    started = time.perf_counter()
    prediction = predicted(name)
    assert time.perf_counter() - started < SECONDS
    assert prediction.scenario["steps"] >= 2
    prediction.trace.check()
    assert sum(prediction.breakdown.values()) == prediction.peak.process_bytes
    said = " / ".join(assumption.what for assumption in prediction.assumptions)
    assert "stopped after" in said
    assert SAYS.get(name, "") in said
    assert OPTIMIZER.get(name, "") in prediction.scenario["optimizer"]
    assert not any(folder.exists() for folder in (Path("output"), Path("checkpoint.pt"), Path("runs")))


def test_short_examples() -> None:
    """Examples are read by people: each has fewer than 120 lines and says how it is called."""
    for path in PATHS.values():
        text = path.read_text()
        assert len(text.splitlines()) < 120, path
        assert f"memlens predict examples/scripts/{path.relative_to(FOLDER)}" in text, path


def test_one_process_of_torchrun_keeps_its_buckets() -> None:
    """DistributedDataParallel's buckets hold every gradient once more: a copy of the 49.6 MiB of weights."""
    prediction = predicted("nano_gpt", environment=TORCHRUN)
    held = {str(category): size for category, size in prediction.breakdown.items()}
    assert held["communication"] == pytest.approx(held["parameters"], rel=0.02)
    assert any(a.what == "one process of a distributed run, alone" for a in prediction.assumptions)
