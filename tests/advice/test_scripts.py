"""Advice for a script as it is: what is advised saves what it saves when it is written into the script."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from tests.support.trainable import TRAINABLE

from memlens.advice.result import Advice
from memlens.advice.scripts import advise_script, largest_batch_of_script
from memlens.errors import UsageError
from memlens.scenarios.script.predict_script import Script, predict_script
from memlens.units import MIB

pytestmark = [pytest.mark.torch, pytest.mark.slow]
# what is advised, and how the script is told to be so by itself
WRITTEN = {
    "amp-bf16": ["--amp"],
    "bf16-weights": ["--half"],
    "checkpointing": ["--checkpoint"],
    "fused-optimizer": ["--fused"],
    "foreach-false": ["--one-by-one"],
    "set-to-none": ["--early"],
    "free-outputs": ["--delete"],
    "offload": ["--offload"],
    "freeze-half": ["--frozen", "3"],
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    file = tmp_path_factory.mktemp("advised") / "train.py"
    file.write_text(TRAINABLE)
    return str(file)


def needs(path: str, *arguments: str, memory: str | int = "80GiB") -> int:
    return predict_script(Script(path, arguments), memory=memory).peak.process_bytes


@pytest.fixture(scope="module")
def memory(path: str) -> int:
    """Less than the script needs as it is, more than it needs with every block recomputed."""
    return (needs(path) + 2 * needs(path, "--checkpoint")) // 3


@pytest.fixture(scope="module")
def found(path: str, memory: int) -> Advice:
    """Advice for the script as it is, on a card on which it does not fit."""
    return advise_script(Script(path), memory=memory)


@pytest.mark.parametrize("name", WRITTEN)
def test_a_change_saves_what_it_saves_when_written(found: Advice, path: str, memory: int, name: str) -> None:
    """From outside and in the script's own code: the same need, to 1 % of it."""
    advised = {item.name: item for item in found.advice}
    written = needs(path, *WRITTEN[name], memory=memory)
    if name not in advised:  # nothing to speak of, and so it is when written
        assert written > 0.994 * found.base.peak.process_bytes
        return
    assert advised[name].process_bytes == pytest.approx(written, rel=0.01)


def test_parts_of_a_batch(found: Advice, path: str, memory: int) -> None:
    """The fewest parts that fit need what the script needs that sums so many by itself; a plan fits too."""
    assert found.base.fits is False
    advised = {item.name: item for item in found.advice}
    parts = advised["micro-batch"]
    assert parts.fits
    size = int(parts.what.split()[2].rstrip(","))
    times = 32 // size
    written = needs(path, "--batch-size", str(size), "--accumulate", str(times), memory=memory)
    assert parts.process_bytes == pytest.approx(written, rel=0.01)
    plan = advised["checkpointing-plan"]
    assert plan.fits
    assert advised["checkpointing"].process_bytes <= plan.process_bytes <= memory


def test_the_largest_batch_by_the_loader(path: str) -> None:
    """The answer fits with the margin, and one more sample does not; both are what the script needs then."""
    found = largest_batch_of_script(Script(path), memory="1GiB", margin="5%").largest_batch
    assert found is not None
    assert found.process_bytes is not None
    assert found.next_process_bytes is not None
    room = 1024 * MIB - found.margin_bytes
    assert found.process_bytes <= room < found.next_process_bytes
    assert found.process_bytes == needs(path, "--batch-size", str(found.batch_size), memory=room)


def test_a_script_without_a_loader(tmp_path: Path) -> None:
    """Its batch is a constant: not found by itself, and set by the name that is given."""
    file = tmp_path / "plain.py"
    file.write_text(
        "import torch\nclass CFG:\n    batch = 16\nnet = torch.nn.Linear(1024, 1024).cuda()\n"
        "optimizer = torch.optim.SGD(net.parameters(), 0.1)\nfor step in range(9):\n"
        "    loss = net(torch.randn(CFG.batch, 512, 1024, device='cuda')).square().mean()\n"
        "    optimizer.zero_grad()\n    loss.backward()\n    optimizer.step()\n"
    )
    script, call = Script(str(file)), {"memory": "700MiB", "margin": "5%"}
    with pytest.raises(UsageError, match="no DataLoader of") as caught:
        largest_batch_of_script(script, **call)
    assert "--batch-arg" in str(caught.value.hint)
    largest = largest_batch_of_script(script, batch_arg="batch", **call).largest_batch
    assert largest is not None
    assert 5 < largest.batch_size < 60
    with pytest.raises(UsageError, match="no argument and no constant called size"):
        largest_batch_of_script(Script(str(file)), memory="1GiB", batch_arg="size")


def test_a_script_that_trains_nothing(tmp_path: Path) -> None:
    """The line says what to advise instead."""
    file = tmp_path / "talks.py"
    file.write_text("import torch\nnet = torch.nn.Linear(9, 9).cuda().eval()\nnet(torch.ones(1, 9).cuda())\n")
    with pytest.raises(UsageError, match="trains no model"):
        advise_script(Script(str(file)), memory="1GiB")
