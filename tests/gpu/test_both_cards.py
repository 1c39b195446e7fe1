"""The tracker and the allocator agree: on a card that is not there, and on the one of this machine if any."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

pytest.importorskip("torch")

import torch
from tests.support.models_on_cpu import MODELS
from torch import nn

import memlens
from memlens import MemTracker
from memlens.measurement.gap import WORKSPACES
from memlens.model.tensors import TensorReport

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("own_models")]
MIB = 1 << 20


@pytest.fixture(params=["simulated", pytest.param("real", marks=pytest.mark.gpu)])
def card(request: pytest.FixtureRequest) -> Iterator[None]:
    """A simulated A100, then this machine's own card without what earlier tests cached."""
    gc.collect()
    if request.param == "simulated":
        with memlens.simulate("A100 40GB"):
            yield
    elif torch.cuda.is_available():
        torch._C._cuda_clearCublasWorkspaces()
        torch.cuda.empty_cache()
        yield
    else:
        pytest.skip("no CUDA device answers")


@pytest.mark.parametrize(("name", "optimizer"), list(zip(MODELS, 5 * ["SGD", "AdamW"], strict=True)))
def test_ten_models_from_building_to_the_second_step(card: None, name: str, optimizer: str) -> None:
    """At every point tensors and workspaces are all that the allocator was asked for: nothing is unseen."""
    build, shape = MODELS[name]
    looks: list[TensorReport] = []
    tracker = MemTracker(device="cuda", callback=looks.append)
    tracker.track()
    model = build().cuda()
    stepper = getattr(torch.optim, optimizer)(model.parameters(), lr=0.1)
    tracker.track()
    for _ in range(2):
        loss = model(torch.rand(shape).cuda()).square().mean()
        tracker.track()
        loss.backward()
        tracker.track()
        stepper.step()
        tracker.track()
        stepper.zero_grad()
        tracker.track()
    tracker.close()
    for look in looks[1:]:
        assert look.gap is not None
        assert look.gap.unseen_bytes == looks[0].gap.unseen_bytes, look
        allocated = look.tensor_bytes + look.gap.rounding_bytes + look.gap.workspace_bytes
        assert allocated + look.gap.unseen_bytes == look.allocated_bytes
    assert looks[2].tensor_bytes > looks[1].tensor_bytes > looks[0].tensor_bytes


def test_a_workspace_is_no_leak(card: None) -> None:
    """After one Linear(1, 1) a cuBLAS workspace stays, and is named (pytorch#95668)."""
    tracker = MemTracker(device="cuda", callback=lambda look: None)
    model = nn.Linear(1, 1).cuda()
    model(torch.ones(1, 1, device="cuda"))
    gap = tracker.gap()
    tracker.close()
    assert gap.workspace_bytes in WORKSPACES
    assert gap.workspaces[0].startswith("1 cuBLAS workspace of ")


@pytest.mark.parametrize(("options", "copies"), [({"foreach": True}, 1), ({"fused": True}, 0)])
def test_the_step_of_a_foreach_adam(card: None, options: dict[str, bool], copies: int) -> None:
    """One Adam step over 100 parameters of 1 MiB: foreach needs room for a copy of all (pytorch#97712)."""
    parameters = [nn.Parameter(torch.ones(1 << 18, device="cuda")) for _ in range(100)]
    optimizer = torch.optim.Adam(parameters, **options)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    optimizer.step()
    rise = torch.cuda.max_memory_allocated() - before
    assert rise == pytest.approx(copies * 100 * MIB, abs=2 * MIB)


def test_free_memory_in_pieces(card: None) -> None:
    """Every second of 16 tensors of 2 MiB is freed: eight pieces are cached, and none joins another."""
    kept = [torch.empty(2 * MIB, dtype=torch.uint8, device="cuda") for _ in range(16)]
    before = torch.cuda.memory_reserved()
    del kept[::2]
    segments = torch.cuda.memory_snapshot()
    pieces = [
        block["size"]
        for segment in segments
        if segment["segment_type"] == "large"
        for block in segment["blocks"]
        if block["state"] == "inactive" and block["size"] == 2 * MIB
    ]
    assert len(pieces) >= 6  # the last of a segment joins its rest
    torch.cuda.empty_cache()  # gives back nothing: something lives in each segment
    assert before - torch.cuda.memory_reserved() < 20 * MIB
