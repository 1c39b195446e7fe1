"""A script's own modules come before libraries of the same name, and before our stand-ins for those."""

from __future__ import annotations

import sys
import types
from pathlib import Path

import pytest

pytest.importorskip("torch")

from memlens.scenarios.script.predict_script import Script, predict_script
from memlens.scenarios.script.preload import give_way, libraries

pytestmark = pytest.mark.torch

TRAIN = """
import torch, accelerate, datasets, evaluate.metrics, profile, utils
from utils.data import WIDTH

assert datasets.load_dataset("any", split=3) == "own"
model = torch.nn.Linear(WIDTH, profile.CLASSES).to(utils.device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.randn(4, WIDTH, device=utils.device)).sum().backward()
    optimizer.step()
"""
OWN = {
    "train.py": TRAIN,
    "datasets.py": "def load_dataset(name, split):\n    return 'own'\n",
    "accelerate.py": "",
    "profile.py": "CLASSES = 3\n",
    "evaluate/metrics.py": "",
    "utils/__init__.py": "import torch\ndevice = 'cuda' if torch.cuda.is_available() else 'cpu'\n",
    "utils/data.py": "WIDTH = 8\n",
}


def written(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_own_modules_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Named as libraries and as modules of Python; what lies where memlens is called from is nobody's."""
    own = written(tmp_path / "own", OWN)
    monkeypatch.chdir(written(tmp_path / "here", {"random.py": "1 / 0", "utils.py": "1 / 0"}))
    prediction = predict_script(Script(str(own / "train.py"), synthetic=True), gpu="T4")
    assert prediction.scenario["steps"] == 2


def test_loaded_modules_give_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that Python itself is made of stay, and those that merely share a name with a folder."""
    written(tmp_path, {"losses.py": "", "sys.py": "", "runs/log.txt": ""})
    for name in ("losses", "losses.dice", "runs"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    give_way(tmp_path)
    assert "losses" not in sys.modules
    assert "losses.dice" not in sys.modules
    assert "runs" in sys.modules
    assert sys.modules["sys"] is sys


def test_a_folder_of_data_is_no_module(tmp_path: Path) -> None:
    """`json/` next to the script holds files; the module is imported from where it is."""
    path = written(tmp_path, {"train.py": "import json, parts", "json/1.json": "", "parts/a.py": ""})
    assert set(libraries(path / "train.py", tmp_path, set())) == {("json", "")}
