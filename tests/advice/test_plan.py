"""A checkpointing plan on 24 layers, against every uniform choice."""

from __future__ import annotations

import functools
from collections.abc import Iterable

import pytest

pytest.importorskip("torch")

from tests.support.advised import Tokens
from torch import nn
from torch.utils.checkpoint import checkpoint

import memlens
from memlens.advice.checkpointing_plan import arrangements, cheapest, find_plan
from memlens.advice.evaluator import ModelEvaluator
from memlens.advice.model_observer import ModelObserver
from memlens.devices import find_gpu
from memlens.scenarios.inputs import read_inputs
from memlens.scenarios.scenario import make_scenario
from memlens.scenarios.target import find_target

pytestmark = [pytest.mark.torch, pytest.mark.slow]
LAYERS, BATCH, INPUT = 24, 8, "int64:256"


def tokens(chosen: Iterable[int] = ()) -> nn.Module:
    """24 layers, of which these are wrapped by hand, as a user would."""
    model = Tokens(layers=LAYERS, wide=256, vocabulary=2000)
    for index in chosen:
        block = model.blocks[index]
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
    return model


@functools.cache
def needs(chosen: tuple[int, ...]) -> tuple[int, int]:
    """Bytes of the process and of its tensors with these layers checkpointed, on a card that never fills."""
    found = memlens.predict(lambda: tokens(chosen), inputs=INPUT, batch_size=BATCH, memory="80GiB")
    return found.peak.process_bytes, found.peak.allocated_bytes


def every(k: int) -> list[tuple[int, ...]]:
    """Every k-th layer, beginning with the first or with the k-th."""
    return [tuple(range(0, LAYERS, k)), tuple(range(k - 1, LAYERS, k))]


def make_evaluator(memory_bytes: int) -> tuple[ModelEvaluator, ModelObserver]:
    scenario = make_scenario(inputs=read_inputs(INPUT), batch_size=BATCH)
    target = find_target(tokens, {})
    evaluator = ModelEvaluator(target=target, scenario=scenario, card=None, memory_bytes=memory_bytes)
    return evaluator, ModelObserver()


def test_the_same_work_needs_no_more_memory() -> None:
    """As many layers as every k-th would be, chosen by the plan: no more for tensors, no more in all."""
    tried, observer = make_evaluator(80 << 30)
    base = tried.predict(tried.scenario, "as it is", observer)
    blocks = observer.facts(tried.scenario, base, find_gpu("A100 80GB")).blocks
    assert len(blocks) == LAYERS
    for k in (2, 3, 4, 6, 12):
        chosen = cheapest(blocks, sum(block.kept_bytes for block in blocks[: LAYERS // k]))
        assert len(chosen) == LAYERS // k
        process, allocated = zip(*map(needs, every(k)), strict=True)
        assert needs(chosen)[1] <= min(allocated)
        assert min(needs(other)[0] for other in arrangements(blocks, chosen)) <= min(process)


@pytest.mark.parametrize("k", [2, 4])
def test_the_same_memory_takes_no_more_work(k: int) -> None:
    """On a card of exactly what every k-th needs, the plan recomputes no more layers, and fits."""
    memory = min(needs(chosen)[0] for chosen in every(k))
    tried, observer = make_evaluator(memory)
    base = tried.predict(tried.scenario, "as it is", observer)
    plan = find_plan(observer.facts(tried.scenario, base, find_gpu("A100 80GB")), tried)
    assert plan is not None
    chosen = tuple(int(index) for index in plan.detail.split(","))
    assert len(chosen) <= LAYERS // k
    found = memlens.predict(lambda: tokens(chosen), inputs=INPUT, batch_size=BATCH, memory=memory)
    assert found.fits
