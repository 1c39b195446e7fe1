"""Scripts as they are: run unchanged on a simulated GPU, kept from leaving traces, stopped when they must."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from tests.support.complaints import complaint

from memlens.errors import TargetError, UsageError
from memlens.explanation.prediction import Prediction
from memlens.scenarios.script.predict_script import Script, predict_script
from memlens.units import MIB

pytestmark = pytest.mark.torch

TRAINS = """
import torch
from torch import nn
device = "cuda" if torch.cuda.is_available() else "cpu"
model = nn.Linear(1024, 1024, bias=False).to(device)
optimizer = torch.optim.AdamW(model.parameters())

def step():
    loss = model(torch.randn(8, 1024, device=device)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss
"""
# name -> (what follows TRAINS, options)
SCRIPTS: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": (
        "import sys\nassert sys.argv[1:] == ['--lr', '1']\nwhile True:\n    step()",
        {"arguments": ("--lr", "1")},
    ),
    "ends_early": ("step()", {}),
    "endless": ("step()\nwhile True:\n    pass", {"max_seconds": 2}),
    "stubborn": (
        "step()\nwhile True:\n    try:\n        while True: pass\n    except BaseException: pass",
        {"max_seconds": 1},
    ),
    "exits": ("import os\nos._exit(3)", {}),
    "forks": ("import os\nwhile True:\n    if os.fork() == 0:\n        import time; time.sleep(60)", {}),
    "programs": ("import subprocess\nwhile True:\n    subprocess.Popen(['sleep', '60'])", {}),
    "killed": ("step()\nimport os, signal\nos.kill(os.getpid(), signal.SIGKILL)", {}),
    "crashes": ("step()\nimport ctypes\nctypes.string_at(0)", {}),
    "talks": ("step()\nimport os\nwhile True:\n    os.write(1, b'x' * 2**20)", {"max_seconds": 3}),
    "stuck": ("import time\nwhile True:\n    time.sleep(1)", {"max_seconds": 1}),
    "waits": (
        "import queue, threading\nfull = queue.Queue()\ndef load():\n    raise ValueError('no such batch')\n"
        "threading.Thread(target=load).start()\nfull.get()", {"max_seconds": 1},
    ),
    "large_file": ("open('big.bin', 'wb').truncate(3 << 30)", {}),
    "asks": (
        "import sys\nassert sys.stdin.read() == ''\nassert input('go on? [y/N] ') == 'y'\n"
        "int(input('how many: '))", {},
    ),
    "terminal": (
        "import os, shutil, subprocess\nheight, width = os.popen('stty size', 'r').read().split()\n"
        "sizes = [(int(width), int(height)), os.get_terminal_size(0), os.get_terminal_size()]\n"
        "sizes.append(shutil.get_terminal_size((1, 1)))\n"
        "answer = subprocess.check_output(['stty', 'size']).split()\n"
        "sizes.append((int(answer[1]), int(answer[0])))\n"
        "if any(tuple(size) != (80, 24) for size in sizes):\n    raise ValueError(sizes)\n"
        "if input('Name: ') == '':\n    step()", {},
    ),
    "homeless": (
        "import os, tempfile, shutil\nos.chdir(tempfile.mkdtemp())\nshutil.rmtree(os.getcwd())\n"
        "while True:\n    step()", {},
    ),
    "busy_threads": (
        "import threading\ndef turn():\n    while True:\n        pass\nfor _ in range(3):\n"
        "    threading.Thread(target=turn).start()\nstep()\nstep()", {},
    ),
    "monkey": (
        "to, linear = torch.Tensor.to, nn.functional.linear\n"
        "torch.Tensor.to = lambda self, *a, **k: to(self, *a, **k)\n"
        "nn.functional.linear = lambda *a: linear(*a)\nnn.Module.__call__ = nn.Module._call_impl\n"
        "torch.cuda.is_available = lambda: False\nwhile True:\n    step()", {},
    ),
    "greedy": ("import numpy\nx = numpy.ones(100 * 2**30, dtype=numpy.uint8)", {}),
    "needs_data": ("open('data/train.bin', 'rb')", {}),
    "downloads": ("import urllib.request\nurllib.request.urlopen('http://example.com/weights.pt')", {}),
    "fails": ("step()\nraise ValueError('no such mode')", {}),
    "no_gpu": ("import sys\ndel model, optimizer\n", {}),
    "writes": (
        "import os, shutil\nfrom pathlib import Path\n"
        "Path('kept.txt').write_text('changed')\nassert open('kept.txt').read() == 'changed'\n"
        "os.makedirs('out/a', exist_ok=True)\nopen('out/a/log.csv', 'a').write('1')\n"
        "assert sorted(os.listdir('.')) == ['kept.txt', 'out', 'victim', 'writes.py'], os.listdir('.')\n"
        "shutil.rmtree('victim')\nassert not os.path.exists('victim/file')\n"
        "torch.save(model.state_dict(), 'out/model.pt')\n"
        "model.load_state_dict(torch.load('out/model.pt'))\nos.rename('out/a/log.csv', 'b.csv')\n"
        "assert os.path.isfile('b.csv')\nimport subprocess\nsubprocess.run(['touch', 'from_a_child'])\n"
        "while True:\n    step()", {},
    ),
    "made_up": (
        "import numpy\ndata = numpy.memmap('absent.bin', dtype=numpy.uint16, mode='r')\n"
        "assert len(data) > 10**6 and int(data[5]) == 0\nwhile True:\n    step()",
        {"synthetic": True},
    ),
    "either_way": (
        "for number in range(9):\n    x = torch.randn(8, 1024, device=device)\n"
        "    if (x.mean(1) > 5).any():\n        outliers = torch.zeros(64 << 20, device=device)\n    step()",
        {},
    ),
    "only_one_way": (
        "def give_up(why):\n    raise ValueError(why)\n"
        "while True:\n    loss = step()\n    if (loss > 5).all():\n        give_up('diverged')", {}
    ),
    "grows": (
        "kept, cache = [], None\nwhile True:\n    out = model(torch.randn(4096, 1024, device=device))\n"
        "    cache = torch.zeros(4 << 20, device=device) if cache is None else cache\n"
        "    optimizer.zero_grad()\n    out.sum().backward()\n    optimizer.step()\n    kept.append(out)", {},
    ),
    "torchrun": ("import os\nrank = int(os.environ['LOCAL_RANK'])\nwhile True:\n    step()", {}),
}  # fmt: skip


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Future[Prediction]]:
    """Every script at work, two at a time; each in a folder of its own."""
    pool = ThreadPoolExecutor(2)
    found = {}
    for name, (rest, options) in SCRIPTS.items():
        folder = tmp_path_factory.mktemp(name)
        (folder / "kept.txt").write_text("as it was")
        (folder / "victim").mkdir()
        (folder / "victim" / "file").write_text("as it was")
        path = folder / f"{name}.py"
        body = rest if name == "no_gpu" else rest.replace("open('data", f"open('{folder}/data")
        path.write_text(("" if name == "no_gpu" else TRAINS) + body.replace("del model, optimizer", ""))
        if name == "writes":
            path.write_text(TRAINS + f"import os\nos.chdir({str(folder)!r})\n" + rest)
        found[name] = pool.submit(predict_script, Script(str(path), **options), gpu="A100 40GB")
    return found


def test_a_script_runs_unchanged(outcomes: dict[str, Future[Prediction]]) -> None:
    """A 4 MiB matrix with AdamW: weights, gradient and two moments are 16 MiB, and two steps were enough."""
    prediction = outcomes["plain"].result()
    assert prediction.scenario["steps"] == 2
    assert prediction.scenario["optimizer"] == "AdamW"
    assert [step.step for step in prediction.steps] == [1, 2]
    assert prediction.steps[1].end_allocated_bytes >= 16 << 20
    assert any(a.what == "stopped after 2 steps" for a in prediction.assumptions)


def test_a_script_that_ends_by_itself(outcomes: dict[str, Future[Prediction]]) -> None:
    """One step is all it takes, and nothing says that it was stopped."""
    prediction = outcomes["ends_early"].result()
    assert prediction.scenario["steps"] == 1
    assert not any("stopped" in a.what for a in prediction.assumptions)


@pytest.mark.parametrize("name", ["homeless", "busy_threads", "monkey"])
def test_odd_and_harmless(outcomes: dict[str, Future[Prediction]], name: str) -> None:
    """A folder that is gone, threads that never end, torch patched by the script: two steps all the same."""
    assert outcomes[name].result().scenario["steps"] == 2


@pytest.mark.parametrize("name", ["endless", "stubborn", "talks"])
def test_time_is_up(outcomes: dict[str, Future[Prediction]], name: str) -> None:
    """An endless loop ends with what was learned before it, even one that catches everything."""
    prediction = outcomes[name].result()
    assert prediction.scenario["steps"] == 1
    assert any("seconds, with 1 step taken" in a.what for a in prediction.assumptions)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("exits", "exits.py called os._exit(3)"),
        ("forks", "forked more than 64 times"),
        ("programs", "started more than 256 programs"),
        ("killed", "was killed, by itself or by a system without memory"),
        ("crashes", "was ended by SIGSEGV"),
        ("stuck", "took no step of its optimizer in 1 seconds (at "),
        ("waits", "failed: ValueError: no such batch"),
        ("large_file", "wrote a file of more than 2.00 GiB"),
        ("asks", "asks.py failed: ValueError: invalid literal for int()"),
        ("greedy", "wanted more host memory than the limit of"),
        ("needs_data", "data/train.bin, which is not there"),
        ("downloads", "nothing is downloaded"),
        ("fails", "fails.py failed: ValueError: no such mode"),
        ("no_gpu", "put nothing on the GPU"),
    ],
)
def test_one_line_says_what_is_wrong(outcomes: dict[str, Future[Prediction]], name: str, line: str) -> None:
    """Each way to fail is reported in one line of its own."""
    assert line in complaint(outcomes, name)


def test_a_question_that_needs_an_answer(outcomes: dict[str, Future[Prediction]]) -> None:
    """A number cannot be guessed: the hint has the question."""
    with pytest.raises(TargetError) as caught:
        outcomes["asks"].result()
    assert "it asked 'how many:'" in (caught.value.hint or "")


def test_a_terminal(outcomes: dict[str, Future[Prediction]]) -> None:
    """However a script asks for the window's size it is 80 by 24; a question gets an empty answer, stated."""
    prediction = outcomes["terminal"].result()
    assert prediction.scenario["steps"] == 1
    assert any(a.what == "the question 'Name:' is answered with ''" for a in prediction.assumptions)


def test_nothing_is_written(outcomes: dict[str, Future[Prediction]], tmp_path_factory: Any) -> None:
    """A script that writes, removes and renames in its folder sees what it did, and the folder does not."""
    assert outcomes["writes"].result().scenario["steps"] == 2
    folder = next(tmp_path_factory.getbasetemp().glob("writes*"))
    assert sorted(path.name for path in folder.iterdir()) == ["kept.txt", "victim", "writes.py"]
    assert (folder / "kept.txt").read_text() == "as it was"
    assert (folder / "victim" / "file").read_text() == "as it was"


def test_made_up_data(outcomes: dict[str, Future[Prediction]]) -> None:
    """With --synthetic a memory map of a file that is not there is zeros, and the result says so."""
    assert any("absent.bin is made up" in a.what for a in outcomes["made_up"].result().assumptions)


def test_a_condition_on_data(outcomes: dict[str, Future[Prediction]]) -> None:
    """The branch that was not taken makes 256 MiB while the last are there: the interval has both."""
    prediction = outcomes["either_way"].result()
    (told,) = (a for a in prediction.assumptions if a.what.startswith("conditions on values"))
    assert "either_way.py:" in told.what
    assert told.high_bytes == 512 << 20
    assert prediction.peak.high_process_bytes >= prediction.peak.process_bytes + (512 << 20)


def test_a_condition_whose_other_way_fails(outcomes: dict[str, Future[Prediction]]) -> None:
    """The other branch ends the script, and that is said."""
    told = [a for a in outcomes["only_one_way"].result().assumptions if a.what.startswith("conditions on")]
    assert "diverged" in told[0].why


def test_a_loop_that_grows(outcomes: dict[str, Future[Prediction]]) -> None:
    """A list of outputs takes 16 MiB more in every step; a cache that was made once is no growth."""
    grown = outcomes["grows"].result().growth
    assert grown is not None
    assert (grown.bytes_per_step, grown.line.partition(":")[0][-8:]) == (16 << 20, "grows.py")
    assert outcomes["plain"].result().growth is None


def test_a_script_for_torchrun(outcomes: dict[str, Future[Prediction]]) -> None:
    """LOCAL_RANK is set where the script asks for it, and the result says so."""
    assert any("torchrun" in a.what for a in outcomes["torchrun"].result().assumptions)


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    """The error names the file."""
    with pytest.raises(TargetError, match=r"there is no file .*train\.py"):
        predict_script(Script(str(tmp_path / "train.py")))


def test_no_steps() -> None:
    """Zero steps would show nothing."""
    with pytest.raises(UsageError, match="nothing is learned"):
        predict_script(Script(__file__, steps=0))


def test_settings_that_a_script_makes_are_used_and_named(tmp_path: Path) -> None:
    """`os.environ[...]` at its top: 80 MiB reserved instead of 160, and the scenario says so."""
    body = (
        "import torch\nMIB = 2**20\nweight = torch.nn.Parameter(torch.zeros(1000, device='cuda'))\n"
        "optimizer = torch.optim.SGD([weight], 0.1)\nfor _ in range(3):\n"
        "    a = torch.empty(30 * MIB, dtype=torch.int8, device='cuda')\n"
        "    b = torch.empty(50 * MIB, dtype=torch.int8, device='cuda')\n    del a, b\n"
        "    c = torch.empty(80 * MIB, dtype=torch.int8, device='cuda')\n    del c\n"
        "    weight.sum().backward()\n    optimizer.step()\n"
    )
    settings = "import os\nos.environ['PYTORCH_CUDA_ALLOC_CONF'] = 'expandable_segments:True'\n"
    path = tmp_path / "train.py"
    found = {}
    for head in ("", settings):
        path.write_text(head + body)
        prediction = predict_script(Script(str(path)), gpu="T4")
        found[prediction.scenario["alloc_conf"]] = prediction.peak.reserved_bytes // MIB
    assert found == {None: 162, "expandable_segments:True": 82}
