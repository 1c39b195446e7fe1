"""Threads that a program starts: what they put on the device is counted, as if the loop had done it."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import memlens  # noqa: E402
from memlens.units import MIB  # noqa: E402

pytestmark = pytest.mark.torch


def test_a_thread_that_prefetches() -> None:
    """Batches that another thread makes and normalises on a stream of its own are allocated there."""
    ready: queue.Queue[Any] = queue.Queue()

    def load() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(3):
                images = torch.zeros(4, 1 << 18).cuda(non_blocking=True)
                ready.put(
                    (images - images.mean(), images.device.type, torch.cuda.current_stream().cuda_stream)
                )

    with memlens.simulate(gpu="A100 40GB") as sim:
        thread = threading.Thread(target=load)
        thread.start()
        thread.join()
        assert torch.cuda.memory_allocated() == 3 * 4 * MIB
        batch, device, stream = ready.get()
        assert device == batch.device.type == "cuda"
        assert stream != torch.cuda.current_stream().cuda_stream == 0
        assert len({event.stream for event in sim.events if hasattr(event, "site")}) == 1
        del batch
    sim.trace.check()


def test_a_pool_of_threads_trains() -> None:
    """Four models trained by a pool: weights, gradients and states of each, and nothing is lost."""

    def train(_: int) -> Any:
        net = nn.Linear(512, 512, bias=False).cuda()
        optimizer = torch.optim.Adam(net.parameters(), foreach=False)
        for _ in range(3):
            with torch.autocast("cuda", torch.bfloat16):
                loss = net(torch.ones(8, 512, device="cuda")).sum()
            loss.backward()
            optimizer.step()
        return net, optimizer

    with memlens.simulate(gpu="A100 40GB") as sim:
        with ThreadPoolExecutor(4) as pool:
            kept = list(pool.map(train, range(4)))
        torch.clear_autocast_cache()
        held = torch.cuda.memory_allocated()
        assert 4 * 4 * MIB <= held < 4 * 4 * MIB + 80 * MIB  # cuBLAS's workspaces, one a thread
        del kept
    sim.trace.check()


def test_data_parallel_on_one_card() -> None:
    """`nn.DataParallel` on one card: an input that needs a gradient is scattered and gathered."""
    with memlens.simulate(gpu="A100 40GB"):
        net = nn.DataParallel(nn.Linear(64, 64)).cuda()
        x = torch.ones(8, 64, device="cuda", requires_grad=True)
        net(x).sum().backward()
        assert x.grad is not None
        assert x.grad.shape == (8, 64)


def test_threads_are_themselves_again() -> None:
    """After the simulation a new thread's tensors are the host's, and one that outlived it computes."""
    go, answer = threading.Event(), []

    def late() -> None:
        go.wait(10)
        answer.append(float(torch.ones(3).sum()))

    with memlens.simulate(gpu="A100 40GB"):
        thread = threading.Thread(target=late)
        thread.start()
    go.set()
    thread.join()
    assert answer == [3.0]
    other = threading.Thread(target=lambda: answer.append(torch.zeros(1).device.type))
    other.start()
    other.join()
    assert answer == [3.0, "cpu"]
