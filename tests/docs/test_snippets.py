"""The Python of the pages is run as it stands, after the few lines that a page takes for granted."""

from __future__ import annotations

import contextlib
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.support.desk import lay_out
from tests.support.pages import REPOSITORY, Block, blocks, pages

BATCHES = """
import torch
from net import make_model
model = make_model().to("cuda")
steps, optimizer = 2, torch.optim.SGD(model.parameters())
loader = iter([torch.zeros(2, 3, 8, 8)] * steps)
targets, criterion = torch.zeros(2, dtype=torch.long, device="cuda"), torch.nn.functional.cross_entropy
"""
TRAIN = """
import torch
def train():
    return torch.zeros(1024, device="cuda")
"""


NOTEBOOK = """
import nbformat
step = "import torch; torch.nn.Linear(8, 8).cuda()(torch.ones(4, 8).cuda()).sum().backward()"
cells = [nbformat.v4.new_code_cell(step) for _ in range(4)]
nbformat.write(nbformat.v4.new_notebook(cells=cells), "train.ipynb")
"""


class Given(NamedTuple):
    """What a snippet takes for granted: names that these lines make, where it runs."""

    lines: str = ""
    gpu: str | None = None
    run: bool = False  # it is a script for `memlens run`


# page, and number of the snippet on it
GIVEN = {
    "docs/commands/advise.md 1": Given("from net import make_model\nmodel = make_model()"),
    "docs/commands/calibrate.md 1": Given(gpu="T4"),
    "docs/commands/predict.md 1": Given(BATCHES, "T4"),
    "docs/commands/predict.md 2": Given("import memlens\nfrom net import make_model\nmodel = make_model()"),
    "docs/commands/run.md 1": Given(run=True),
    "docs/commands/summary.md 1": Given("from net import make_model\nmodel = make_model()"),
    "docs/guides/notebook.md 1": Given(NOTEBOOK),
    "docs/guides/track.md 1": Given("from torch import nn\ndef vgg19(): return nn.Conv2d(3, 8, 3)", "T4"),
    "docs/guides/track.md 2": Given("import memlens"),
    "docs/guides/track.md 3": Given("import memlens, torch\nhidden = torch.ones(3)"),
    "docs/guides/track.md 4": Given("import memlens\ndef train(): pass"),
}
NOT_RUN = {
    "docs/commands/snapshot.md 1": "needs a real GPU to record",
    "docs/guides/oom.md 1": "needs a real GPU to record",
    "docs/guides/lines.md 2": "about a module of the reader's",
}


def snippets() -> list[Any]:
    found = []
    for page in [*pages(), REPOSITORY / "CONTRIBUTING.md"]:
        name = str(page.relative_to(REPOSITORY))
        python = [block for block in blocks(page.read_text()) if block.language == "python"]
        for number, block in enumerate(python, 1):
            key = f"{name} {number}"
            text = GIVEN.get(key, Given()).lines + block.text
            marks = [pytest.mark.torch] if needs_torch(text) else []
            if key not in NOT_RUN:
                found.append(pytest.param(key, block, marks=marks, id=f"{name}:{block.line}"))
    return found


TORCH_WORDS = ("torch", "make_model", "who_holds", "memlens.track", "on_oom", "predict")


def needs_torch(text: str) -> bool:
    return any(word in text for word in TORCH_WORDS)


def execute(block: Block, given: Given, folder: Path) -> dict[str, Any]:
    """Run a snippet as a program of its own, and return its names."""
    lay_out(folder, ["memlens", "", "net.py"])
    path = folder / "snippet.py"
    path.write_text(block.text)
    if given.run:
        subprocess.run([sys.executable, "-m", "memlens", "run", str(path)], check=True, capture_output=True)
        return {}
    with contextlib.ExitStack() as stack:
        if given.gpu:
            import memlens

            stack.enter_context(memlens.simulate(given.gpu))
        names: dict[str, Any] = {}
        exec(given.lines, names)
        return runpy.run_path(str(path), init_globals=names, run_name="snippet")


@pytest.mark.parametrize(("key", "block"), snippets())
def test_a_snippet_runs(key: str, block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copied into a file, it runs to its end."""
    if needs_torch(GIVEN.get(key, Given()).lines + block.text):
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "net", raising=False)
    execute(block, GIVEN.get(key, Given()), tmp_path)
    sys.modules.pop("net", None)


def test_a_wrong_snippet_is_found(tmp_path: Path) -> None:
    """The check, broken once on purpose: a name that memlens does not have."""
    with pytest.raises(ImportError):
        execute(Block("python", "from memlens import divine\n", 1), Given(), tmp_path)


def test_what_is_not_run_is_there() -> None:
    """No reason is kept for a snippet that is gone."""
    every = {
        f"{page.relative_to(REPOSITORY)} {number}"
        for page in pages()
        for number, _ in enumerate([b for b in blocks(page.read_text()) if b.language == "python"], 1)
    }
    assert {*NOT_RUN, *GIVEN} - every == set()
