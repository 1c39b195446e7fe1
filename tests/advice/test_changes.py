"""Every change in the table says what it does to a script, or why nothing can be done from outside."""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("torch")

import torch
from tests.support.predictions import prediction

from memlens.advice import changes  # noqa: F401  # fills the table
from memlens.advice.batch import parts_of
from memlens.advice.change import TABLE, Change, Proposer, Untried
from memlens.advice.checkpointing_plan import plan_change
from memlens.advice.facts import Block, Head, TargetFacts
from memlens.advice.script_edits import EDITS
from memlens.advice.script_evaluator import ALLOC_CONF, BATCH, FREE_UNUSED
from memlens.devices import find_gpu
from memlens.scenarios.model_edits import Edits
from memlens.scenarios.scenario import make_scenario

pytestmark = pytest.mark.torch
UNTRIED = {"adafactor", "chunked-loss"}
# a large model on which nothing that could help is done yet
FACTS = TargetFacts(
    scenario=replace(make_scenario(batch_size=8), edits=Edits(set_to_none=False)),
    base=prediction(), gpu=find_gpu("A100 40GB"), dtype=torch.float32,
    blocks=(Block("h.0", 100, 10), Block("h.1", 100, 10)), flops=20, kept_bytes=200,
    checkpointing="blocks", has_batch_norm=True, blocks_have_batch_norm=False, has_convolution=True,
    fixed_batch=False, attention="timm", keeps_cache=True, in_place=("act",), linears=4,
    parameters=2_000_000, trainable=2_000_000, last_layer="head", head=Head("head", 50_000, False),
)  # fmt: skip


def all_facts() -> list[TargetFacts]:
    """The same in training and inference, on a card with bf16 and on one without."""
    inference = make_scenario(batch_size=8, mode="inference")
    older = replace(FACTS, gpu=find_gpu("T4"))
    return [FACTS, older, replace(FACTS, scenario=inference), replace(older, scenario=inference)]


@pytest.mark.parametrize("proposer", TABLE, ids=lambda proposer: proposer.__name__)
def test_every_change_can_be_made_to_a_script_or_says_why_not(proposer: Proposer) -> None:
    """Each word that a script is told is an edit that exists."""
    proposed = [change for facts in all_facts() for change in proposer(facts)]
    assert proposed
    for change in proposed:
        assert_known(change)


def test_what_is_searched_for_can_be_made_to_a_script() -> None:
    """A checkpointing plan, and a batch in parts."""
    for facts in all_facts():
        assert_known(plan_change(facts, (0,)))
        assert_known(parts_of(facts, 2))


def assert_known(change: Change) -> None:
    if isinstance(change.edit_script, Untried):
        assert change.name in UNTRIED
        assert change.edit_script.why
    else:
        assert set(change.edit_script) <= EDITS.keys() | {BATCH, ALLOC_CONF, FREE_UNUSED}
        assert change.edit_script


def test_a_change_without_its_script_side_cannot_be_made() -> None:
    """It was a KeyError in front of the user, once a script was advised."""
    with pytest.raises(TypeError, match="edit_script"):
        Change("name", "what", "how", "cost", lambda scenario: scenario)  # type: ignore[call-arg]
