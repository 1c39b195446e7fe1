"""Scripts that start a process for each card: the first rank is predicted, inside the simulation."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch")

from memlens.errors import TargetError
from memlens.scenarios.script.predict_script import Script, predict_script

pytestmark = pytest.mark.torch

RANK = """
import os, sys, torch
import multiprocessing, torch.multiprocessing as mp
import torch.distributed as dist

def train(rank, ranks, bad=False):
    assert "SLURM_PROCID" not in os.environ
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method="tcp://127.0.0.1:1", rank=rank, world_size=ranks)
    layer = torch.nn.Linear(512, 512, bias=False).to(rank)
    model = torch.nn.parallel.DistributedDataParallel(layer, device_ids=[rank])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    while True:
        loss = model(torch.randn(8, 512, device=f"cuda:{rank}")).sum()
        loss.backward()
        optimizer.step()
        everywhere = [torch.zeros_like(loss)]
        dist.all_reduce(loss)
        dist.gather(loss, everywhere)
        if bad:
            raise ValueError("no such rank")

class Worker(mp.Process):
    def __init__(self, rank):
        super().__init__()
        self.rank = rank

    def run(self):
        train(self.rank, 2)

def all_of(started):
    for process in started:
        process.start()
    for process in started:
        process.join()

if __name__ == "__main__":
"""
STARTS = {
    "spawn": "mp.spawn(train, args=(4,), nprocs=4)",
    "start_processes": "mp.start_processes(train, args=(4,), nprocs=4, start_method='fork').join()",
    "process": "all_of([mp.Process(target=train, args=(rank, 2)) for rank in range(2)])",
    "context": "make = multiprocessing.get_context('spawn').Process\n"
    "    all_of([make(target=train, args=(rank, 2)) for rank in range(2)])",
    "subclass": "all_of([Worker(0), Worker(1)])",
    "variables": "train(int(os.environ.get('RANK')), int(os.getenv('WORLD_SIZE')))",
}


def written(folder: Path, start: str) -> Script:
    path = folder / "train.py"
    path.write_text(RANK + f"    {start}\n")
    return Script(str(path))


@pytest.mark.parametrize("start", STARTS)
def test_the_first_rank_is_predicted(start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps, with the buckets of its 1 MiB of gradients; that it is one of several is stated."""
    monkeypatch.setenv("SLURM_PROCID", "3")
    prediction = predict_script(written(tmp_path, STARTS[start]), gpu="T4")
    assert prediction.scenario["steps"] == 2
    held = {str(category): size for category, size in prediction.breakdown.items()}
    assert held["communication"] == held["parameters"] == 1 << 20
    said = [one.what for one in prediction.assumptions]
    assert "one process of a distributed run, alone" in said
    stated = "one process of torchrun" if start == "variables" else "of the processes that run "
    assert any(one.startswith(stated) for one in said)


def test_an_error_in_a_process_is_the_scripts(tmp_path: Path) -> None:
    """The line is that of the rank, not of whoever waits for it."""
    start = "all_of([mp.Process(target=train, args=(0, 1, True))])"
    with pytest.raises(TargetError, match=r"ValueError: no such rank .*train\.py:\d+ in train"):
        predict_script(written(tmp_path, start), gpu="T4")


def test_pools_stay_processes(tmp_path: Path) -> None:
    """Work on the host that a pool does is done, and not in this process."""
    body = (
        "from concurrent.futures import ProcessPoolExecutor\n"
        "    with mp.Pool(2) as pool, ProcessPoolExecutor(2) as more:\n"
        "        if sum(pool.map(abs, [1, -2])) + sum(more.map(abs, [3])) == 6:\n            train(0, 1)"
    )
    assert predict_script(written(tmp_path, body), gpu="T4").scenario["steps"] == 2
