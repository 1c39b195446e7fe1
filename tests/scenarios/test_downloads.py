"""Fonts, lists of names and the like are answered; what decides about memory is not."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from memlens.errors import TargetError
from memlens.scenarios.script.predict_script import Script, predict_script
from memlens.scenarios.shims.downloads import answer
from memlens.scenarios.shims.registry import Shims

pytestmark = pytest.mark.torch


class Noted(Shims):
    """Shims that keep what they say, of no run."""

    def __init__(self, *, synthetic: bool = False) -> None:
        super().__init__(synthetic=synthetic)
        self.said: list[str] = []

    def say(self, what: str, why: str, low_bytes: int = 0, high_bytes: int = 0) -> None:
        self.said.append(what)


@pytest.mark.parametrize(
    ("address", "begins"),
    [
        ("https://api.github.com/repos/owner/name/branches?per_page=100", b"[]"),
        ("https://pypi.org/pypi/ultralytics/json", b'{"info"'),
        ("https://example.com/imagenet_classes.txt", b"class 0\nclass 1\n"),
        ("https://example.com/data/imagenet_class_index.json", b'{"0": ["n0", "class 0"]'),
        ("https://example.com/coco.names", b"class 0\n"),
        ("https://example.com/input.txt", None),
        ("https://example.com/weights.pt", None),
        ("https://example.com/classes.zip", None),
        ("https://example.com/dog.jpg", None),
    ],
)
def test_what_is_answered(address: str, begins: bytes | None) -> None:
    """Names of classes and versions are; texts, weights, archives and pictures are not. It is stated."""
    shims = Noted()
    content = answer(shims, address)
    assert (content or b"")[: len(begins or b"")] == (begins or b"")
    assert (content is None) == (begins is None)
    assert len(shims.said) == (begins is not None)


def test_pictures_are_data() -> None:
    """Their size may matter, so they are made up only where that is asked for."""
    pytest.importorskip("PIL")
    shims = Noted(synthetic=True)
    assert (answer(shims, "https://example.com/dog.jpg") or b"").startswith(b"\x89PNG")
    assert shims.said == ["https://example.com/dog.jpg is answered with a picture of 500x375"]


SCRIPT = """
import json, os, urllib.request, torch
names = urllib.request.urlopen("https://example.com/imagenet_classes.txt").read().decode().splitlines()
urllib.request.urlretrieve("https://example.com/labels.txt", "labels.txt")
torch.hub.download_url_to_file("https://example.com/class_index.json", "index.json", progress=False)
if len(open("labels.txt").read().splitlines()) != len(names) or len(json.load(open("index.json"))) != 1000:
    raise ValueError(len(names))
REQUESTS
model = torch.nn.Linear(8, len(names)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.randn(4, 8, device="cuda")).sum().backward()
    optimizer.step()
"""
REQUESTS = """
import requests
with requests.get("https://api.github.com/repos/owner/name/branches", stream=True, timeout=3) as answer:
    answer.raise_for_status()
    if answer.json() != []:
        raise ValueError(answer.text)
if b"class 3" not in b"".join(requests.Session().get("https://example.com/classes.txt").iter_content(99)):
    raise ValueError("no classes")
"""


def test_a_script_goes_on(tmp_path: Path) -> None:
    """By whatever library it asks; and each answer is in the result."""
    path = tmp_path / "train.py"
    try:
        import requests  # noqa: F401  # type: ignore[import-untyped,unused-ignore]
    except ImportError:
        path.write_text(SCRIPT.replace("REQUESTS", ""))
    else:
        path.write_text(SCRIPT.replace("REQUESTS", REQUESTS))
    prediction = predict_script(Script(str(path)), gpu="T4")
    assert prediction.scenario["steps"] == 2
    said = [one.what for one in prediction.assumptions]
    assert "https://example.com/labels.txt is answered with 1000 names" in said


def test_what_matters_is_not_answered(tmp_path: Path) -> None:
    """A text to train on: its one line names the address."""
    path = tmp_path / "train.py"
    path.write_text(
        "import urllib.request\nurllib.request.urlretrieve('https://example.com/input.txt', 'a')\n"
    )
    with pytest.raises(TargetError, match=r"wants https://example\.com/input\.txt, which is not on this"):
        predict_script(Script(str(path)), gpu="T4")
