"""What a script needs and is not there: one line that says what to pass instead, or made-up data."""

from __future__ import annotations

import importlib.util
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

pytest.importorskip("torch")

from memlens.errors import TargetError
from memlens.explanation.prediction import Prediction
from memlens.scenarios.script.predict_script import Script, predict_script

pytestmark = [pytest.mark.torch, pytest.mark.slow]

FIT = """
import torch
from torch import nn
model = nn.Linear(512, 10).cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1)
def fit(x):
    for step in range(3):
        optimizer.zero_grad()
        model(x.float().cuda()).sum().backward()
        optimizer.step()
"""
CLASSIFY = """
from datasets import load_dataset
from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification
tokenizer = AutoTokenizer.from_pretrained("nobody/no-such-model")
data = load_dataset("nobody/no-such-data")
short = dict(truncation=True, padding="max_length", max_length=64)
data = data.map(lambda rows: tokenizer(rows["text"], **short), batched=True)
data.set_format("torch", columns=["input_ids", "attention_mask", "label"])
net = BertForSequenceClassification(BertConfig(num_hidden_layers=1, hidden_size=48)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
for batch in torch.utils.data.DataLoader(data["train"], batch_size=8):
    assert batch["input_ids"].shape == (8, 64)
    ids, labels = batch["input_ids"].cuda(), batch.pop("label").cuda()
    optimizer.zero_grad()
    net(input_ids=ids, labels=labels).loss.backward()
    optimizer.step()
"""
FOLDER = """
from torchvision import datasets, transforms as T
looks = T.Compose([T.Resize(16), T.CenterCrop(16), T.ToTensor()])
data = datasets.ImageFolder("no/such/folder", looks)
for x, y in torch.utils.data.DataLoader(data, 4, num_workers=2):
    fit(x.flatten(1)[:, :512])
"""
EVERY = """
import pickle
from memlens.scenarios.shims.pictures import DATASETS
from torchvision import datasets, transforms as T
look = T.Compose([T.Resize((16, 16)), T.ToTensor()])
OWN = {
    "EMNIST": {"split": "balanced"}, "DatasetFolder": {"loader": None, "extensions": (".jpg",)},
    "Cityscapes": {"target_type": "semantic"}, "OxfordIIITPet": {"target_types": "segmentation"},
}
def both(picture, target):
    return look(picture), target if isinstance(target, dict) else look(target)
for name in DATASETS:
    kind = getattr(datasets, name, None)
    if kind is None:
        continue
    pair = name in ("VOCSegmentation", "VOCDetection", "Cityscapes", "OxfordIIITPet")
    own = OWN.get(name, {}) | ({"transforms": both} if pair else {"transform": look})
    data = kind("no/such/folder", **own)
    assert type(data) is kind and isinstance(data, datasets.VisionDataset), name
    again = pickle.loads(pickle.dumps(torch.utils.data.Subset(data, [0, len(data) - 1])))
    picture, target = again[1]
    assert picture.shape[1:] == (16, 16), name
    assert pair or torch.is_tensor(target) or isinstance(target, int) or target.shape == (), name
    assert len(data.classes) >= 10 and (pair or len(data.class_to_idx) >= 10), name
fit(torch.ones(4, 512))
"""
SEVERAL = """
import numpy
words = numpy.memmap("train.bin", dtype=numpy.uint16, mode="r")
start = torch.load("start.pth")
names = open("names.txt").read()
fit(torch.ones(4, 512))
"""
LOAD = "model.load_state_dict(torch.load('last.pth', map_location='cpu')['model'])\nfit(torch.ones(4, 512))"
TENSORS = "from safetensors.torch import load_file\nmodel.load_state_dict(load_file('last.safetensors'))\n"
# (libraries, script after FIT, --synthetic, the line or what is assumed)
MISSING: dict[str, tuple[str, str, bool, str]] = {
    "arrays": ("numpy", "import numpy\nfit(numpy.load('x.npz')['x'])", True, "x.npz, which is not there"),
    "table": ("pandas", "import pandas\npandas.read_csv('x.csv')", True, "x.csv, which is not there"),
    "parquet": (
        "pandas pyarrow",
        "import pandas\npandas.read_parquet('x.parquet')",
        False,
        "x.parquet, which",
    ),
    "tensor": ("torch", "fit(torch.load('x.pt'))", False, "x.pt, which is not there"),
    "used_as_data": ("torch", "fit(torch.load('x.pt')['x'])", True, "used as data"),
    "weights": ("torch", LOAD, True, "last.pth holds is taken as weights"),
    "tensors": ("safetensors", TENSORS + "fit(torch.ones(4, 512))", True, "last.safetensors holds"),
    "folder": ("torchvision", FOLDER, False, "no/such/folder, which is not there"),
    "folder_made_up": ("torchvision PIL", FOLDER, True, "ImageFolder is made up"),
    "every_data_set": ("torchvision PIL", EVERY, True, "CelebA is made up: 162,770 pictures of 178x218"),
    "text": ("datasets transformers", CLASSIFY, False, "wants nobody/no-such-model, which is not on this"),
    "text_made_up": (
        "datasets transformers",
        CLASSIFY,
        True,
        "the tokenizer of nobody/no-such-model is made",
    ),
    "several": ("numpy", SEVERAL, False, "train.bin, which is not there"),
    "hub": (
        "torch",
        "torch.hub.load('nobody/nothing', 'net', trust_repo=True)",
        False,
        "wants nobody/nothing",
    ),
}
HINTS = {
    "several": "to feed zeros; --synthetic goes on to here: train.bin is made up: 67108864 bytes of zeros (",
    "arrays": "whose arrays have the same shapes",
    "table": "the same columns",
    "tensor": "--synthetic, which takes missing weights as random",
    "folder": "--synthetic",
    "text": "--synthetic for a made-up tokenizer",
    "hub": "make the model from code",
}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Future[Prediction]]:
    """Every script whose libraries are there, two at a time."""
    pool, found = ThreadPoolExecutor(2), {}
    for name, (libraries, text, synthetic, _) in MISSING.items():
        if all(importlib.util.find_spec(library) for library in libraries.split()):
            path = tmp_path_factory.mktemp(name) / f"{name}.py"
            path.write_text(FIT + text)
            script = Script(str(path), synthetic=synthetic, max_seconds=60)
            found[name] = pool.submit(predict_script, script, gpu="T4")
    return found


@pytest.mark.parametrize("name", MISSING)
def test_what_is_not_there(outcomes: dict[str, Future[Prediction]], name: str) -> None:
    """One line names it, with a way out that is one; or the result says that it was made up."""
    libraries, _, _, line = MISSING[name]
    if name not in outcomes:
        pytest.skip(f"needs {libraries}")
    problem = outcomes[name].exception()
    if problem is None:
        prediction = outcomes[name].result()
        assert line in " / ".join(assumption.what for assumption in prediction.assumptions)
        assert prediction.scenario["steps"] >= 2
        return
    assert isinstance(problem, TargetError)
    assert line in problem.message
    assert "\n" not in problem.message
    assert problem.hint
    assert HINTS.get(name, "") in problem.hint


def test_all_that_is_missing_is_said_at_once(outcomes: dict[str, Future[Prediction]]) -> None:
    """Each with its line, and what even --synthetic cannot make up."""
    if "several" not in outcomes:
        pytest.skip("needs numpy")
    problem = outcomes["several"].exception()
    assert isinstance(problem, TargetError)
    lines = [f"several.py:{number})" for number in (13, 14)]
    assert all(line in str(problem.hint) for line in lines)
    assert "what start.pth holds is taken as weights" in str(problem.hint)
    assert "needs names.txt, which is not there" in str(problem.hint)
