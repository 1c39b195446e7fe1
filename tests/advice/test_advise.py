"""`memlens.advise` end to end on small models: what is advised, what is not, and that figures are runs."""

from __future__ import annotations

import copy
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from tests.support.advised import Attention, Residual, Tokens, conv_net
from torch import nn

import memlens
from memlens.advice.advise import advise, largest_batch
from memlens.advice.blocks import find_blocks
from memlens.advice.change import with_model_edit
from memlens.advice.result import Advice, Advised
from memlens.advice.shims.eight_bit import AdamW8bit
from memlens.advice.shims.lora import add_lora
from memlens.errors import UsageError
from memlens.model import Category
from memlens.scenarios.model_edits import ModelEdit
from memlens.scenarios.predict import simulate_scenario
from memlens.scenarios.scenario import make_scenario
from memlens.scenarios.target import find_target
from memlens.units import MIB

pytestmark = pytest.mark.torch
TEXT = {"inputs": "int64:128", "batch_size": 16}
SPEC = [
    "schema", "target", "scenario", "device", "base", "advice", "combination", "largest_batch", "refused",
    "simulated", "memlens", "torch",
]  # fmt: skip


def named(found: Advice) -> dict[str, Advised]:
    return {item.name: item for item in found.advice}


@pytest.fixture(scope="module")
def tokens() -> Advice:
    """A model of four layers on a card on which it does not fit by some 60 MiB."""
    return advise(Tokens(), **TEXT, memory=needs(Tokens(), **TEXT) - 60 * MIB)


def needs(model: nn.Module, **call: Any) -> int:
    """Bytes of the process on a card with more than enough."""
    return memlens.predict(model, **call, memory="80GiB").peak.process_bytes


def test_each_figure_is_that_of_a_run(tokens: Advice) -> None:
    """Mixed precision, all checkpointed, another optimizer: what `predict` says of the same scenario."""
    memory = tokens.base.device.memory_bytes
    for name, changed in {
        "amp-bf16": {"precision": "amp-bf16"},
        "bf16-weights": {"precision": "bf16"},
        "checkpointing": {"grad_checkpointing": True},
        "adafactor": {"optimizer": "adafactor"},
        "expandable-segments": {"alloc_conf": "expandable_segments:True"},
    }.items():
        item = named(tokens).get(name)
        if item is not None:
            alone = memlens.predict(Tokens(), **TEXT, memory=memory, **changed)
            assert (item.process_bytes, item.fits) == (alone.peak.process_bytes, alone.fits), name
            assert item.saves_bytes == tokens.base.peak.process_bytes - item.process_bytes
    assert {"amp-bf16", "bf16-weights", "checkpointing"} <= set(named(tokens))


def test_replaying_is_as_good_as_simulating() -> None:
    """Segments that grow: the base trace replayed gives what a run with that setting gives, and no gaps."""
    call = {"inputs": "3x96x96", "batch_size": 16, "memory": "80GiB"}
    model = conv_net()
    item = named(advise(model, **call))["expandable-segments"]
    alone = memlens.predict(model, **call, alloc_conf="expandable_segments:True")
    alone.trace.check()
    assert item.process_bytes == alone.peak.process_bytes


def test_the_ranking(tokens: Advice) -> None:
    """What leaves the result alone comes first, and in each part what saves more."""
    keys = [(item.changes_result, -item.saves_bytes) for item in tokens.advice]
    assert keys == sorted(keys)
    alters = {item.name for item in tokens.advice if item.changes_result}
    assert {"amp-bf16", "bf16-weights", "lora", "freeze-body"} <= alters
    assert not alters & {"checkpointing", "micro-batch", "free-outputs", "offload", "chunked-loss"}


def test_found(tokens: Advice) -> None:
    """It did not fit, and does with the first thing advised."""
    assert tokens.base.fits is False
    assert tokens.found
    assert any(item.fits for item in tokens.advice)
    assert tokens.combination is None


def test_the_contract(tokens: Advice) -> None:
    """The keys of memlens.advice/1."""
    found = tokens.to_dict()
    assert list(found) == SPEC
    assert found["schema"] == "memlens.advice/1"
    assert set(found["advice"][0]) >= {
        "name", "what", "how", "saves_bytes", "process_bytes", "fits", "changes_result", "cost",
    }  # fmt: skip
    assert found["base"]["fits"] is False


def test_what_is_on_is_not_advised() -> None:
    """A loop that does it all already hears nothing of it."""
    found = advise(
        Tokens(layers=2), **TEXT, memory="80GiB", precision="amp-bf16", grad_checkpointing=True,
        optimizer="adafactor", alloc_conf="expandable_segments:True",
    )  # fmt: skip
    on = {"amp-bf16", "amp-fp16", "checkpointing", "checkpointing-plan", "adafactor", "expandable-segments"}
    assert not on & set(named(found))
    assert "set-to-none" not in named(found)


def test_gradients_that_the_loop_keeps() -> None:
    """Filling with zeros keeps them through forward: dropping them saves their size where forward peaks."""
    model = Tokens(layers=2, wide=512)
    found = named(advise(model, inputs="int64:64", batch_size=32, memory="80GiB", set_to_none=False))
    assert found["set-to-none"].saves_bytes > 10 * MIB


def test_a_conv_net_hears_nothing_of_attention() -> None:
    """No attention, no head over a vocabulary, and BatchNorm makes parts of a batch alter the result."""
    found = advise(conv_net(), inputs="3x64x64", batch_size=16, memory="80GiB")
    tried = {item.name for item in (*found.advice, *found.refused)}
    assert not tried & {"sdpa", "chunked-loss", "no-cache"}
    assert named(found)["micro-batch"].changes_result
    assert named(found)["checkpointing"].changes_result


def test_same_result_leaves_out_what_alters_it() -> None:
    """Neither advised nor simulated."""
    found = advise(Tokens(layers=2), **TEXT, memory="80GiB", same_result=True)
    assert found.advice
    assert not any(item.changes_result for item in found.advice)


def test_only_harmless_activations_work_in_place() -> None:
    """The first one's input is read again by the addition; overwriting it would change the sum."""
    item = named(advise(Residual(), inputs="3x128x128", batch_size=16, memory="80GiB"))["in-place"]
    assert '"body.1", "body.3"' in item.how
    assert '"first"' not in item.how
    assert item.saves_bytes >= 3 * 16 * 16 * 128 * 128 * 4


def test_attention_weights_that_nobody_reads() -> None:
    """4 heads of 1024 x 1024 scores for each of 8 samples: 128 MiB a copy, none with need_weights=False."""
    found = named(advise(Attention(), inputs="1024x64", batch_size=8, memory="80GiB"))
    assert found["sdpa"].saves_bytes > 128 * MIB
    assert "need_weights=False" in found["sdpa"].how


def test_a_large_vocabulary_in_chunks() -> None:
    """2,048 rows of 32,000 scores are 250 MiB, of which neither softmax nor gradient is whole any more."""
    found = named(advise(Tokens(layers=1, wide=64, vocabulary=32_000), **TEXT, memory="80GiB"))
    assert found["chunked-loss"].saves_bytes > 250 * MIB
    assert found["free-outputs"].saves_bytes >= 200 * MIB


def test_inference_hears_nothing_of_training() -> None:
    """No optimizer and no backward."""
    found = advise(Tokens(layers=2), **TEXT, memory="80GiB", mode="inference")
    tried = {item.name for item in (*found.advice, *found.refused)}
    assert tried <= {
        "amp-bf16", "bf16-weights", "free-outputs", "expandable-segments", "in-place", "sdpa", "micro-batch",
    }  # fmt: skip
    assert "bf16-weights" in tried


def test_without_a_card_nothing_is_said_about_fitting() -> None:
    """The changes are ranked all the same."""
    found = advise(Tokens(layers=2), **TEXT)
    assert found.found is None
    assert found.combination is None
    assert found.advice
    assert all(item.fits is None for item in found.advice)


def test_a_combination_where_no_single_one_is_enough() -> None:
    """Bounded by what is left when everything is done; what is found fits when simulated, and alters nothing
    if it need not."""
    model, text = Tokens(layers=4, vocabulary=16_000), {"inputs": "int64:2048", "batch_size": 1}
    singles = advise(model, **text, memory="80GiB", same_result=True).advice
    memory = min(item.process_bytes for item in singles) - 160 * MIB
    found = advise(model, **text, memory=memory, same_result=True)
    assert found.combination is not None
    assert found.combination.fits
    assert len(found.combination.names) > 1
    assert not found.combination.changes_result
    assert found.combination.process_bytes <= memory
    assert found.found


def test_nothing_is_found_for_what_cannot_fit() -> None:
    """The context alone takes more than this card has."""
    found = advise(Tokens(layers=1), **TEXT, memory="100MiB", same_result=True)
    assert found.found is False
    assert found.combination is None
    assert not any(item.fits for item in found.advice)


@pytest.mark.parametrize("memory", ["600MiB", "4GiB"])
@pytest.mark.parametrize("width", [16, 48])
def test_the_largest_batch_and_predict_agree(memory: str, width: int) -> None:
    """What is found fits by `predict` as well; the certain batch fits even at the worst."""
    pooled = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 4)]
    model = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), *pooled)
    call: dict[str, Any] = {"inputs": "3x48x48", "memory": memory, "gpu": "T4"}
    found = largest_batch(model, **call).largest_batch
    assert found is not None

    def asked(size: int) -> memlens.Prediction:
        return memlens.predict(model, batch_size=size, **call)

    assert asked(found.batch_size).fits
    if found.certain_batch_size:
        sure = asked(found.certain_batch_size)
        assert sure.fits
        assert not sure.may_not_fit
    assert asked(found.batch_size).may_not_fit == (found.certain_batch_size < found.batch_size)


def test_the_largest_batch_is_the_largest() -> None:
    """It fits with the margin, one sample more does not; both as `predict` says on a card so much smaller."""
    model, memory, margin = Tokens(layers=2), 700 * MIB, 50 * MIB
    found = largest_batch(model, inputs="int64:128", memory=memory, margin=margin).largest_batch
    assert found is not None
    sizes = (found.batch_size, found.batch_size + 1)
    fits = [memlens.predict(model, inputs="int64:128", batch_size=n, memory=memory - margin) for n in sizes]
    assert [p.fits for p in fits] == [True, False]
    assert found.process_bytes == fits[0].peak.process_bytes
    assert found.next_process_bytes == fits[1].peak.process_bytes
    assert found.batch_size == memlens.max_batch_size(
        model, inputs="int64:128", memory=memory, margin="50MiB"
    )


def test_no_batch_fits_a_card_that_is_too_small() -> None:
    """0, and what one sample would need."""
    found = largest_batch(Tokens(), inputs="int64:128", memory="100MiB").largest_batch
    assert found is not None
    assert found.batch_size == 0
    assert found.next_process_bytes
    assert memlens.max_batch_size(Tokens(), inputs="int64:128", memory="100MiB") == 0


def test_a_batch_needs_a_card_and_a_shape() -> None:
    """Nothing to fit into, and nothing to vary."""
    with pytest.raises(UsageError, match="no card"):
        memlens.max_batch_size(Tokens(), inputs="int64:128")
    with pytest.raises(UsageError, match="batch and all"):
        memlens.max_batch_size(Tokens(), inputs=torch.zeros(4, 128, dtype=torch.int64), memory="8GiB")


def test_the_model_is_left_as_it_was() -> None:
    """Not frozen, not moved, no LoRA, no hooks, the same forward."""
    model = Tokens(layers=2)
    before = copy.deepcopy(model)
    advise(model, **TEXT, memory="80GiB")
    assert str(model) == str(before)
    assert [n for n, _ in model.named_parameters()] == [n for n, _ in before.named_parameters()]
    assert all(p.requires_grad and p.device.type == "cpu" for p in model.parameters())
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), before.parameters(), strict=True))
    assert not any("forward" in vars(m) or m._forward_hooks for m in model.modules())


def test_states_of_eight_bits() -> None:
    """A byte an element and 4 for each 256, twice; small parameters keep fp32 (bitsandbytes)."""
    model = nn.Linear(1024, 1024)
    found = memlens.predict(model, batch_size=4, gpu="T4", optimizer=AdamW8bit)
    quantised, scales, small, maps = 2 << 20, 2 * 4096 * 4, 2 * 1024 * 4, 2 * 1024
    assert found.breakdown[Category.OPTIMIZER_STATE] == quantised + scales + small + maps


def simulated(model: nn.Module, edit: ModelEdit, **call: Any) -> memlens.Prediction:
    """The prediction of a model after `edit`, on a card with 16 GiB."""
    scenario = with_model_edit(edit)(make_scenario(**call))
    target = find_target(model, {})
    return simulate_scenario(target, scenario, None, 16 << 30, True, lambda text: None)


def test_lora_trains_thin_pairs() -> None:
    """Of two 1024-wide layers one is the head: 16 x 1024 twice with two states of 4 bytes each."""
    model = nn.Sequential(nn.Linear(1024, 1024), nn.Linear(1024, 1024))
    found = simulated(model, lambda m: add_lora(m, "1"), batch_size=4)
    assert 2 * 2 * 16 * 1024 * 4 <= found.breakdown[Category.OPTIMIZER_STATE] < 300_000


def test_blocks_are_found() -> None:
    """Blocks repeat a class and have children; a stack of single layers has none."""
    assert find_blocks(Tokens(layers=3)) == ["blocks.0", "blocks.1", "blocks.2"]
    assert find_blocks(nn.Sequential(*(nn.Linear(8, 8) for _ in range(4)))) == []


def test_of_stages_the_blocks_inside_are_found() -> None:
    """Three stages of two layers are six blocks; six layers with a list of experts each are six, too."""
    stages = nn.ModuleList(Tokens(layers=2) for _ in range(3))
    assert find_blocks(stages) == [f"{stage}.blocks.{layer}" for stage in range(3) for layer in range(2)]
    assert find_blocks(nn.ModuleList(Tokens(layers=2) for _ in range(6))) == [str(n) for n in range(6)]
