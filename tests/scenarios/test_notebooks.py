"""Notebooks as they are: cell after cell in one namespace, and what stays alive between them is counted."""

from __future__ import annotations

import copy
import importlib.util
import os
import re
import subprocess
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("nbformat")
pytest.importorskip("IPython")

from tests.support.complaints import complaint
from tests.support.notebooks import write_notebook

from memlens.advice.scripts import largest_batch_of_script
from memlens.errors import TargetError
from memlens.explanation.prediction import Prediction
from memlens.explanation.prediction_record import recall
from memlens.render.consoles import as_text
from memlens.render.prediction import PredictionView
from memlens.render.report import to_html
from memlens.scenarios.script.predict_script import Script, predict_script
from memlens.scenarios.script.preload import libraries
from memlens.units import MIB

pytestmark = pytest.mark.torch
EXAMPLES = Path(__file__).parents[2] / "examples" / "notebooks"
SECONDS = 20.0  # of a processor, that each example may take

MODEL = """
import torch
from torch import nn
SIZE = 1024

def make():
    model = nn.Linear(SIZE, SIZE, bias=False, device="cuda")
    return model, torch.optim.AdamW(model.parameters())
"""
LOOP = """
for number in range(1000):
    optimizer.zero_grad()
    loss = model(torch.randn(8, SIZE, device="cuda")).sum()
    loss.backward()
    optimizer.step()
"""
MAGICS = """
!pip install nothing
%matplotlib inline
files = !ls
assert list(files) == []
%timeit wide = torch.zeros(2**20, device="cuda")
assert "wide" not in globals()
one = %time torch.zeros(2**18, device="cuda")
%load_ext autoreload
%tensorboard --logdir runs
if True:
    %time two = torch.zeros(2**18, device="cuda")
"""
COLAB = """
from google.colab import drive, files, userdata
import ipywidgets, os
from kaggle_secrets import UserSecretsClient
from tqdm.notebook import tqdm
drive.mount("/content/drive")
os.environ["TOKEN"] = userdata.get("TOKEN") + UserSecretsClient().get_secret("TOKEN")
for name in files.upload():
    raise ValueError
@ipywidgets.interact(x=3)
def double(x):
    return 2 * x
assert double(2) == 4
for _ in tqdm(range(2)):
    x = torch.zeros(2**18, device="cuda")
display(x)
"""
IN_A_FUNCTION = "def train():\n    model, optimizer = make()" + LOOP.replace("\n", "\n    ")
# name -> (cells after the first, which has MODEL; options). A line of dashes stands between two cells
NOTEBOOKS: dict[str, tuple[str, dict[str, Any]]] = {
    "trains": (
        f"""model, optimizer = make()
---
%%time{LOOP}
---
with torch.no_grad():
    y = model(x := torch.zeros(4, SIZE, device="cuda"))""", {},
    ),
    "trains_twice": (
        f"""model, optimizer = make(){LOOP}
---
old = model, optimizer
model, optimizer = make(){LOOP}""", {},
    ),
    "in_a_function": (
        f"""{IN_A_FUNCTION}return model, optimizer
---
trained = train()
---
x = torch.zeros(4 * 2**20, device="cuda")
---
trained[0].weight""", {},
    ),
    "fits": (
        """from torch.utils.data import DataLoader
loader = DataLoader(torch.zeros(512, SIZE), batch_size=8)

def fit(epochs):
    model, optimizer = make()
    losses, whole = [], []
    for epoch in range(epochs):
        for x in loader:
            optimizer.zero_grad()
            losses.append(model(x.cuda()).sum())
            losses[-1].backward()
            optimizer.step()
        with torch.no_grad():
            whole.append(sum(model(x.cuda()).shape[0] for x in loader))
    return model, optimizer, len(losses), whole
---
*trained, steps, whole = fit(5)
---
assert (steps, whole) == (2 + 4, [512, 16, 16, 16, 16])
---
more = fit(1000)""", {},
    ),
    "displays": (
        """x = torch.zeros(2**20, device="cuda")
---
x + 1
---
y = x + 2
---
del x, y
_ is Out[3]
---
None
---
for n in range(2):
    torch.zeros(2**20, device="cuda")""", {},
    ),
    "magics": (
        f"""{MAGICS}
---
%%bash
rm -rf everything
---
%%writefile helper.py
import torch
WIDTH = 3
three = torch.zeros(2**18, device="cuda")
---
%run helper.py
assert WIDTH == 3
---
import asyncio
import helper
await asyncio.sleep(0)""", {},
    ),
    "some_cells": (
        """raise ValueError
---
x = torch.zeros(2**20, device="cuda")
---
raise ValueError""", {"cells": "1,3"},
    ),
    "colab": (COLAB, {}),
    "fails": (
        """def divide(x):
    return x / 0
---
x = torch.zeros(2**20, device="cuda")

divide(1)""", {},
    ),
    "no_python": ("x = 1\nx = = 2", {}),
    "needs_data": ("import pandas as pd\n\nrows = pd.read_csv('/kaggle/input/absent/rows.csv')", {}),
    "no_gpu": ("x = 1", {}),
    "starts_a_program": ("rate = 0.1\n!pip install x\n!python train.py  --lr {rate}", {}),
    "endless": (
        """x = torch.zeros(2**20, device="cuda")
while True:
    pass
---
raise ValueError""", {"max_seconds": 2},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Future[Prediction]]:
    """Every notebook at work, two at a time; each in a folder of its own."""
    pool = ThreadPoolExecutor(2)
    waiting = {}
    for name, (text, options) in NOTEBOOKS.items():
        file = tmp_path_factory.mktemp(name) / f"{name}.ipynb"
        path = write_notebook(file, MODEL, *text.split("\n---\n"))
        waiting[name] = pool.submit(predict_script, Script(path, **options), gpu="T4")
    return waiting


def rows(prediction: Prediction) -> dict[int, dict[str, Any]]:
    return {row["cell"]: row for row in prediction.scenario["cells"]}


def added(prediction: Prediction) -> list[float]:
    """What each cell added, in MiB."""
    return [row["added_bytes"] / MIB for row in prediction.scenario["cells"]]


def said(prediction: Prediction) -> str:
    return " / ".join(assumption.what for assumption in prediction.assumptions)


def test_cells_share_a_namespace_and_go_on_after_a_loop(outcomes: dict[str, Future[Prediction]]) -> None:
    """4 MiB of weights; gradient, two moments, 16.25 MiB of workspaces; a result. The loop was cut short."""
    prediction = outcomes["trains"].result()
    prediction.trace.check()
    assert [step.step for step in prediction.steps] == [1, 2]
    assert added(prediction) == [0, 4, pytest.approx(12 + 16.25, abs=0.01), 2 * 4 * 1024 * 4 / MIB]
    assert [row["stopped"] for row in prediction.scenario["cells"]] == [False, False, True, False]
    assert "cell 3 stopped after 2 steps" in said(prediction)
    assert re.fullmatch(r".*trains\.ipynb, cell 3, line \d", prediction.peak.line)


def test_each_loop_takes_its_steps(outcomes: dict[str, Future[Prediction]]) -> None:
    """A second model is trained beside the first, which a variable keeps: 16 MiB more, two steps more."""
    prediction = outcomes["trains_twice"].result()
    assert [step.step for step in prediction.steps] == [1, 2, 3, 4]
    assert added(prediction)[2] == 16
    assert "cells 2-3 stopped after 2 steps each" in said(prediction)
    held = {row["name"]: (row["bytes"], row["alone_bytes"]) for row in prediction.scenario["variables"]}
    assert held["old"] == (16 * MIB, 16 * MIB)
    assert held["optimizer"] == (16 * MIB, 8 * MIB)  # the model leads to weights and gradients, too


def test_what_a_stopped_function_held_may_stay(outcomes: dict[str, Future[Prediction]]) -> None:
    """It would return 16 MiB, and 16 more come later: at worst 12 MiB above the peak, which the loop has."""
    prediction = outcomes["in_a_function"].result()
    assert added(prediction)[2:4] == [16.25, 16]
    worst = {a.what: a.high_bytes for a in prediction.assumptions}["cell 3 stopped after 2 steps"]
    assert worst == pytest.approx((16.25 + 16 + 16 - 36.25) * MIB, abs=MIB / 100)
    assert "ended at in_a_function.ipynb, cell 5, line 1 in <module>: NameError" in said(prediction)


def test_loops_over_loaders_end_and_functions_return(outcomes: dict[str, Future[Prediction]]) -> None:
    """Two steps, then one an epoch, and each evaluation once whole; 1,000 epochs are too many: it stops."""
    prediction = outcomes["fits"].result()
    assert [row["cut_steps"] for row in prediction.scenario["cells"]] == [0, 0, 6, 0, 32]
    assert [row["stopped"] for row in prediction.scenario["cells"]] == [False, False, False, False, True]
    assert added(prediction)[2:] == [16 + 16.25, 0, 0]
    assert "loops over data loaders in cell 3 end after 2 steps, later epochs after one (6 in all)" in said(
        prediction
    )
    assert {row["name"] for row in prediction.scenario["variables"]} == {"trained"}


def test_what_is_displayed_stays_alive(outcomes: dict[str, Future[Prediction]]) -> None:
    """`Out` keeps the value of a cell's last line, after every variable is gone; a loop displays nothing."""
    prediction = outcomes["displays"].result()
    assert added(prediction) == [0, 4, 4, 4, -8, 0, 0]
    assert prediction.scenario["variables"] == [{"name": "Out[3]", "bytes": 4 * MIB, "alone_bytes": 4 * MIB}]


def test_magics_run_what_they_time_and_nothing_else(outcomes: dict[str, Future[Prediction]]) -> None:
    """What is timed is part of its line, and %timeit keeps no name. Commands are left out, and it is said."""
    prediction = outcomes["magics"].result()
    assert added(prediction) == [0, 2, 0, 0, 1, 1]
    assert rows(prediction)[2]["peak_bytes"] == 4 * MIB
    assert "not run: !pip, !ls, %tensorboard, %%bash" in said(prediction)


def test_only_the_cells_that_were_asked_for_run(outcomes: dict[str, Future[Prediction]]) -> None:
    """`--cells 1,3` of four: the others raise."""
    assert list(rows(outcomes["some_cells"].result())) == [1, 3]


def test_what_only_colab_has_does_nothing(outcomes: dict[str, Future[Prediction]]) -> None:
    """Drives, secrets, widgets and bars of a browser: each is said, and the notebook goes on."""
    prediction = outcomes["colab"].result()
    assert added(prediction) == [0, 1]
    assert "google.colab is a stand-in" in said(prediction)
    assert "kaggle_secrets is a stand-in" in said(prediction)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (
            "fails",
            "fails.ipynb failed: ZeroDivisionError: division by zero (fails.ipynb, cell 2, line 2 in divide)",
        ),
        (
            "no_python",
            "no_python.ipynb failed: SyntaxError: invalid syntax (no_python.ipynb, cell 2, line 2)",
        ),
        (
            "needs_data",
            "needs_data.ipynb needs /kaggle/input/absent/rows.csv, which is not there "
            "(needs_data.ipynb, cell 2, line 3 in <module>)",
        ),
        ("no_gpu", "no_gpu.ipynb put nothing on the GPU"),
    ],
)
def test_an_error_names_cell_and_line(outcomes: dict[str, Future[Prediction]], name: str, says: str) -> None:
    """Never a file that the user does not have."""
    if name == "needs_data":
        pytest.importorskip("pandas")
    assert complaint(outcomes, name).endswith(says)


def test_a_program_that_a_cell_starts_is_another_prediction(
    outcomes: dict[str, Future[Prediction]],
) -> None:
    """A notebook that only starts a script puts nothing on the GPU itself: the hint is what to type."""
    with pytest.raises(TargetError) as caught:
        outcomes["starts_a_program"].result()
    assert caught.value.hint == "memlens predict python train.py --lr 0.1"


def test_a_cell_without_end_is_the_last(outcomes: dict[str, Future[Prediction]]) -> None:
    """What was seen in time counts; no step was taken, so nothing is said of steps."""
    prediction = outcomes["endless"].result()
    assert added(prediction) == [0, 4]
    assert "stopped after 2 seconds, with 0 steps taken" in said(prediction)
    assert "cell 2 stopped" not in said(prediction)


def test_the_page_shows_memory_after_each_cell(outcomes: dict[str, Future[Prediction]]) -> None:
    """Rows where something moved, the others counted; it is there again in a prediction that was saved."""
    prediction = outcomes["trains"].result()
    for shown in (prediction, recall(prediction.trace)):
        assert shown is not None
        text = as_text(PredictionView(shown), 80)
        assert re.search(r"3 +32\.25 MiB +\+28\.25 MiB +36\.25 MiB +stopped", text)
        assert "the others (1) leave it as it is" in text
        assert re.search(r"optimizer +16\.00 MiB +8\.00 MiB", text)
        assert "2 steps of the notebook" in " ".join(text.split())
        assert max(map(len, text.splitlines())) <= 80


def test_the_html_page_has_the_tables_too(outcomes: dict[str, Future[Prediction]]) -> None:
    """Every cell is in it; a record whose cells are no cells is no prediction."""
    pytest.importorskip("jinja2")
    prediction = outcomes["fits"].result()
    page = to_html(prediction.trace, prediction.target)
    assert "Memory after each cell, MiB" in page
    assert "cut short" in page
    assert "trained" in page
    broken = copy.deepcopy(prediction.trace.metadata)
    broken["prediction"]["scenario"]["cells"][0]["peak_bytes"] = "much"
    assert recall(replace(prediction.trace, metadata=broken)) is None


def test_the_largest_batch_of_a_notebook(tmp_path: Path) -> None:
    """A constant that a cell assigns is set from outside."""
    loop = LOOP.replace("randn(8,", "randn(BATCH,")
    cells = (MODEL + "BATCH = 8", "model, optimizer = make()", "%%time" + loop)
    path = write_notebook(tmp_path / "a.ipynb", *cells)
    advice = largest_batch_of_script(Script(path), memory="1GiB", batch_arg="BATCH")
    assert advice.largest_batch is not None
    assert advice.largest_batch.batch_size > 1000


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.ipynb")))
def test_an_example_runs_as_it_is(name: str, tmp_path: Path) -> None:
    """Each in seconds: four are predicted, with two steps or more; the one without a GPU is measured."""
    path = EXAMPLES / f"{name}.ipynb"
    tops = {name.partition(".")[0] for name, _ in libraries(path, EXAMPLES, set())} - {"google"}
    tops |= {"accelerate"} if "transformers" in tops else set()
    if lacking := sorted(top for top in tops if importlib.util.find_spec(top) is None):
        pytest.skip(f"needs {', '.join(lacking)}")
    before = os.times()
    if name == "tables":
        command = [
            sys.executable,
            "-m",
            "memlens",
            "run",
            "--lines",
            "-o",
            str(tmp_path / "a.memlens"),
            str(path),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert "tables.ipynb, cell 4" in done.stdout
    else:
        prediction = predict_script(Script(str(path)), gpu="A100 40GB")
        prediction.trace.check()
        assert prediction.scenario["steps"] >= 2
        assert sum(prediction.breakdown.values()) == prediction.peak.process_bytes
        assert f"memlens predict examples/notebooks/{name}.ipynb" in path.read_text()
        assert "ended at" not in said(prediction)
    now = os.times()
    took = now.children_user + now.children_system - before.children_user - before.children_system
    assert took < SECONDS


def test_an_example_shows_what_leaks() -> None:
    """After `del` and `empty_cache` only `Out` holds the first model, by the graph of what was displayed."""
    prediction = predict_script(Script(str(EXAMPLES / "leak_between_cells.ipynb")), gpu="T4")
    held = {row["name"]: row["alone_bytes"] for row in prediction.scenario["variables"]}
    assert set(held) == {"Out[3]", "large", "large_optimizer"}
    assert held["Out[3]"] > 1200 * MIB
