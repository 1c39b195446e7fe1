"""Changes of the loop around the model: what it keeps alive, and how the allocator is set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from memlens.advice.change import Change, Untried, proposes, with_model_edit
from memlens.advice.facts import TargetFacts
from memlens.advice.shims.chunked import CHUNK_ROWS, ChunkedLoss
from memlens.allocator import parse_config
from memlens.scenarios.scenario import Scenario

EXPANDABLE = "expandable_segments:True"


@proposes
def set_to_none(facts: TargetFacts) -> Iterator[Change]:
    """Only where the loop fills gradients with zeros instead of dropping them."""
    if facts.is_training and not facts.scenario.edits.set_to_none:
        yield Change(
            "set-to-none",
            "gradients dropped between the steps",
            "optimizer.zero_grad(set_to_none=True)  # the default since torch 2.0",
            "",
            lambda s: replace(s, edits=replace(s.edits, set_to_none=True)),
            {"free-gradients": None},
        )


@proposes
def free_outputs(facts: TargetFacts) -> Iterator[Change]:
    """The last outputs live until the next ones take their name."""
    if not facts.scenario.edits.free_outputs:
        when = "loss = criterion(outputs, targets)\n" if facts.is_training else "keep(outputs.cpu())\n"
        yield Change(
            "free-outputs",
            "the outputs let go when they have been used",
            f"{when}del outputs  # and no list of losses: append loss.item()",
            "",
            lambda s: replace(s, edits=replace(s.edits, free_outputs=True)),
            {"free-unused": None},
        )


@proposes
def no_cache(facts: TargetFacts) -> Iterator[Change]:
    """A transformers model hands out the keys and values of every layer while it trains."""
    if facts.is_training and facts.keeps_cache:
        yield Change(
            "no-cache", "no key-value cache while it trains", "model.config.use_cache = False", "",
            with_model_edit(lambda model: setattr(model.config, "use_cache", False)), {"no-cache": None},
        )  # fmt: skip


@proposes
def chunked_loss(facts: TargetFacts) -> Iterator[Change]:
    """Token scores of a large vocabulary, their softmax and its gradient, a part of the rows at a time."""
    if facts.is_training and facts.head is not None:
        head = facts.head

        def apply(scenario: Scenario) -> Scenario:
            loss = ChunkedLoss(head)
            changed = with_model_edit(loss.edit)(scenario)
            return changed if head.inside_model else replace(changed, loss=loss)

        yield Change(
            "chunked-loss",
            f"{head.path} and the loss over its {head.vocabulary:,} scores {CHUNK_ROWS} rows at a time",
            "# the model returns `hidden`, what it would give to its head\n"
            "def rows(hidden, head, targets):\n"
            "    return F.cross_entropy(head(hidden).float(), targets, reduction='sum')\n"
            f"parts = zip(hidden.flatten(0, 1).split({CHUNK_ROWS}),\n"
            f"            targets.flatten().split({CHUNK_ROWS}))\n"
            f"head = model.{head.path}\n"
            "loss = sum(checkpoint(rows, h, head, t, use_reentrant=False) for h, t in parts)\n"
            "loss = loss / targets.numel()",
            "the head is multiplied twice",
            apply,
            Untried("the head and the loss meet in the script's own code"),
        )


@proposes
def expandable_segments(facts: TargetFacts) -> Iterator[Change]:
    """Segments that grow leave fewer gaps; of no use where next to nothing is reserved and unused."""
    config = facts.scenario.alloc_conf
    if config is not None and parse_config(config).expandable_segments:
        return
    yield Change(
        "expandable-segments",
        "an allocator whose segments grow",
        f"export PYTORCH_CUDA_ALLOC_CONF={EXPANDABLE}",
        "set before Python starts, on Linux",
        lambda s: replace(s, alloc_conf=f"{s.alloc_conf},{EXPANDABLE}" if s.alloc_conf else EXPANDABLE),
        {"alloc-conf": EXPANDABLE},
        needs_replay=True,
    )
