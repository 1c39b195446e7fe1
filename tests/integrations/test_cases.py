"""What users of other tools ran into, with the right values: many of the numbers are in public threads."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")

import torch
from tests.support.models_on_cpu import StorageCounter
from torch import nn

import memlens
from memlens.measurement.tensors.watch import TensorWatch
from memlens.model import Category

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("own_models")]
CPU = torch.device("cpu")
MIB = 1 << 20


@pytest.fixture
def watch() -> Iterator[TensorWatch]:
    """A watch of the CPU that has seen what other tests left."""
    gc.collect()
    found = TensorWatch(CPU)
    found.take()
    yield found
    found.close()


def kept_by(watch: TensorWatch) -> int:
    """Bytes of activations alive."""
    return sum(tensor.bytes for tensor in watch.take().live if tensor.category is Category.ACTIVATION)


def losses_of(steps: int, backward: bool) -> tuple[list[torch.Tensor], nn.Module]:
    model, losses = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 256)), []
    for _ in range(steps):
        loss = model(torch.ones(128, 256)).sum()
        losses.append(loss)
        if backward:
            loss.backward()
    return losses, model


def test_losses_appended_before_backward_keep_every_graph(watch: TensorWatch) -> None:
    """Each step keeps its input and the hidden layer, 128 x 256 x 4 bytes each: 10 steps keep 2.5 MiB."""
    before = kept_by(watch)
    losses, model = losses_of(10, backward=False)
    assert kept_by(watch) - before == 10 * 2 * 128 * 256 * 4
    hidden = next(tensor for tensor in watch.take().live if tensor.category is Category.ACTIVATION)
    assert hidden.name.startswith("saved by ")
    holder = memlens.who_holds(losses[3]).holders[0]
    assert holder.expression == "losses[3]"
    assert holder.where.startswith("test_losses_appended_before_backward_keep_every_graph, test_cases.py:")
    del model


def test_losses_appended_after_backward_keep_only_themselves(watch: TensorWatch) -> None:
    """After backward a loss is 4 bytes; its graph has given its tensors back."""
    before = kept_by(watch)
    losses, model = losses_of(10, backward=True)
    assert kept_by(watch) - before == 0
    scalars = [tensor for tensor in watch.take().live if tensor.shape == () and tensor.bytes == 4]
    assert len(scalars) >= len(losses) == 10
    del model


def test_the_output_of_a_layer_used_100_times() -> None:
    """Linear(1024, 1024) applied 100 times to 10,240 rows: 4.004 + 40 + 4,000 MiB, workspaces apart.

    The first reading of torchinfo#144's own card is 4,044.0 MiB.
    """
    with memlens.simulate("A100 80GB"):
        layer = nn.Linear(1024, 1024).cuda()
        tracker = memlens.MemTracker(callback=lambda look: None)
        x = torch.randn(10_240, 1024, device="cuda")
        out = x
        for _ in range(100):
            out = layer(out)
        tracker.track()
        gap = tracker.gap()
        tracker.close()
    assert tracker.last is not None
    assert tracker.last.tensor_bytes / MIB == pytest.approx(4044.004, abs=0.001)
    assert gap.workspace_bytes == 8_519_680
    assert gap.unseen_bytes == 0


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[None]:
    """A process group of this process alone: what DDP holds in each of many is the same."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no distributed")
@pytest.mark.parametrize("views", [False, True])
def test_the_buckets_of_ddp(one_rank: None, views: bool) -> None:
    """DDP keeps buckets as large as the gradients, unless gradients are views of them (pytorch PR 41954)."""
    with StorageCounter() as counter:
        model = nn.Sequential(nn.Linear(256, 256), nn.Linear(256, 256))
        parameters = sum(p.untyped_storage().nbytes() for p in model.parameters())
        wrapped = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=views)
        for _ in range(2):
            wrapped(torch.ones(4, 256)).sum().backward()
        held = counter.bytes
    extra = held - parameters  # gradients, and buckets where they are not the same
    assert extra == pytest.approx((1 if views else 2) * parameters, rel=0.02)


@pytest.mark.skipif(not torch.distributed.is_available(), reason="this torch has no distributed")
def test_two_ranks_of_ddp(tmp_path: Path) -> None:
    """Two processes over gloo: each holds a third copy of its weights as buckets, cut as memlens says."""
    from tests.support import ddp_rank

    from memlens.simulation.torch_api.data_parallel import buckets

    command = [sys.executable, "-m", ddp_rank.__name__]
    ranks = [
        subprocess.Popen([*command, str(rank), str(tmp_path / "store")], stdout=subprocess.PIPE, text=True)
        for rank in (0, 1)
    ]
    ours = [bucket.nbytes for _, bucket in buckets(list(ddp_rank.model().parameters()), 25 * MIB)]
    for rank in ranks:
        plain, views = json.loads(rank.communicate(timeout=120)[0])
        weights = plain["parameters"]
        assert plain["held"] == [3 * weights] * 2  # weights, gradients, buckets
        assert views["held"] == [2 * weights] * 2  # the gradients are in the buckets
        assert plain["buckets"] == views["buckets"] == ours == [12_420_040, 13_121_536]


def test_reserved_memory_that_no_request_fits() -> None:
    """Free memory in pieces: how much is free, the largest piece, and that a request of that size fails."""
    context = memlens.simulate("T4", memory_bytes=(141 + 64) * MIB, raise_oom=True)
    with context as simulation:
        kept = [torch.empty(MIB, device="cuda") for _ in range(15)]
        del kept[::2]
        from memlens.explanation.fragmentation import pool_use

        large = pool_use(simulation.allocator.snapshot_segments())[1]
        assert (large.free_bytes, large.largest_free_bytes) == (32 * MIB, 4 * MIB)
        assert torch.cuda.memory_reserved() - torch.cuda.memory_allocated() == 32 * MIB
        with pytest.raises(torch.OutOfMemoryError):
            torch.empty(2 * MIB, dtype=torch.float64, device="cuda")
