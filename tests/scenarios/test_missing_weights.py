"""With `--synthetic` a checkpoint that is not there is any weights; data that is not there is an error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from memlens.errors import TargetError
from memlens.scenarios.script.failure import complain
from memlens.scenarios.script.predict_script import Script, predict_script
from memlens.scenarios.shims.no_weights import NoWeights

pytestmark = pytest.mark.torch

AS_DATA: dict[str, Callable[[Any], Any]] = {
    "an index": lambda it: it[0],
    "a slice": lambda it: it["images"][:100],
    "unpacked": lambda it: (lambda pair: [first for first, _ in [pair]])(it),
    "its length": len,
    "a data set": lambda it: torch.utils.data.TensorDataset(it["x"]),
    "a loader": lambda it: torch.utils.data.DataLoader(it, shuffle=True),
    "a method of tensors": lambda it: it.float(),
    "a whole model": lambda it: it.eval(),
    "called": lambda it: it(1),
    "a sum": lambda it: it + 1,
    "stacked": lambda it: torch.stack(it),
    "a tensor": lambda it: torch.tensor(it),
}


@pytest.mark.parametrize("how", AS_DATA)
def test_data_is_not_made_up(how: str) -> None:
    """Whatever is done with it that only data can do: one line says so."""
    with pytest.raises((TargetError, TypeError, RuntimeError)) as caught:
        AS_DATA[how](NoWeights())
    told = complain(caught.value, "train.py", None, "")
    assert told.message.startswith("a file that is not there is used as data or as a whole model")


def test_weights_are_made_up() -> None:
    """Parts, renamed keys, the number of an epoch, and the best score so far."""
    checkpoint = NoWeights()
    assert isinstance(checkpoint["model"], NoWeights)
    assert checkpoint
    assert "state_dict" in checkpoint
    assert "teacher" not in checkpoint
    assert {key[7:]: value for key, value in checkpoint["state_dict"].items()} == {}
    assert list(range(checkpoint["epoch"] + 1, 3)) == [1, 2]
    assert not checkpoint["best"] > 0.5
    assert checkpoint.get("lr", 3) is not None
    assert not hasattr(checkpoint, "state_dict")
    assert {**checkpoint, "more": 1} == {"more": 1}


SCRIPT = """
import torch
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.AdamW(model.parameters())
checkpoint = torch.load("absent.pt", map_location="cpu")
model.load_state_dict({key.replace("module.", ""): value for key, value in checkpoint["model"].items()})
optimizer.load_state_dict(checkpoint["optimizer"])
torch.amp.GradScaler("cuda").load_state_dict(checkpoint["scaler"])
images, labels = torch.load("FOLDER/data.pt")
names = torch.load("FOLDER/old.pt")
if names != ["cat", "dog"]:
    raise ValueError(names)
for epoch in range(checkpoint["epoch"] + 1, 9):
    model(images[:4].cuda()).sum().backward()
    optimizer.step()
"""


def test_a_script_that_resumes_and_loads_data(tmp_path: Path) -> None:
    """Its checkpoint is not there; its data is, and some of it in the format of old versions."""
    torch.save((torch.ones(64, 8), torch.ones(64)), tmp_path / "data.pt")
    torch.save(["cat", "dog"], tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    path = tmp_path / "train.py"
    path.write_text(SCRIPT.replace("FOLDER", str(tmp_path)))
    prediction = predict_script(Script(str(path), synthetic=True), gpu="T4")
    assert prediction.scenario["steps"] == 2
    assert any(
        one.what.startswith("what absent.pt holds is taken as weights") for one in prediction.assumptions
    )
