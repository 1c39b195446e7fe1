"""Keep less between forward and backward."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from torch import nn

from memlens.advice.attention_switch import HOW, turn
from memlens.advice.blocks import checkpoint_these
from memlens.advice.change import Change, proposes, with_model_edit
from memlens.advice.facts import TargetFacts
from memlens.advice.shims.offload import offloaded
from memlens.scenarios.scenario import Scenario
from memlens.units import format_bytes


@proposes
def fused_attention(facts: TargetFacts) -> Iterator[Change]:
    """Scores of every pair of tokens that are written to memory now."""
    if facts.attention:
        kind = facts.attention
        yield Change(
            "sdpa",
            "attention that does not write its scores to memory (SDPA)",
            HOW[kind],
            "faster",
            with_model_edit(lambda model: turn(kind, model)),
            {"sdpa": None},
        )


@proposes
def in_place(facts: TargetFacts) -> Iterator[Change]:
    """Activations whose input no other operator reads."""
    if not facts.in_place:
        return
    paths = facts.in_place

    def edit(model: nn.Module) -> None:
        for path in paths:
            module: Any = model.get_submodule(path)
            module.inplace = True

    few = ", ".join(paths[:3]) + (f" and {len(paths) - 3} more" if len(paths) > 3 else "")
    yield Change(
        "in-place",
        f"activations that overwrite their input ({few})",
        f'for path in {_shown(paths)}:\n    model.get_submodule(path).inplace = True',
        "",
        with_model_edit(edit),
        {"in-place": list(paths)},
    )  # fmt: skip


def _shown(paths: tuple[str, ...]) -> str:
    quoted = ", ".join(f'"{path}"' for path in paths[:4])
    return f"[{quoted}{', ...' if len(paths) > 4 else ''}]"


@proposes
def checkpointing(facts: TargetFacts) -> Iterator[Change]:
    """All blocks, as the model offers it or one by one."""
    if not facts.is_training or facts.scenario.grad_checkpointing or not facts.checkpointing:
        return
    paths = [block.path for block in facts.blocks]
    share = sum(block.flops for block in facts.blocks) / facts.flops if facts.flops else 1.0
    cost = f"recomputes {share or 1:.0%} of forward" + batch_norm_note(facts)
    yield Change(
        "checkpointing",
        "gradient checkpointing of every block",
        CHECKPOINTING[facts.checkpointing],
        cost,
        with_model_edit(lambda model: checkpoint_these(model, paths))
        if facts.checkpointing == "blocks"
        else lambda s: replace(s, grad_checkpointing=True),
        {"checkpointing": None},
        changes_result=facts.blocks_have_batch_norm,
        group="activations",
    )


def batch_norm_note(facts: TargetFacts) -> str:
    """Running statistics are updated once more when a block is recomputed."""
    return "; BatchNorm's running statistics move twice a step" if facts.blocks_have_batch_norm else ""


# what a user writes, by who does it
CHECKPOINTING = {
    "transformers": "model.gradient_checkpointing_enable()",
    "timm": "model.set_grad_checkpointing()",
    "blocks": "# in forward, for each block\n"
    "x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)",
}


@proposes
def offload(facts: TargetFacts) -> Iterator[Change]:
    """Activations wait for backward in host memory."""
    if not facts.is_training or not facts.kept_bytes:
        return

    def apply(scenario: Scenario) -> Scenario:
        edits = replace(scenario.edits, around_forward=(*scenario.edits.around_forward, offloaded))
        return replace(scenario, edits=edits)

    size = format_bytes(facts.kept_bytes)
    yield Change(
        "offload",
        "activations kept in host memory",
        "with torch.autograd.graph.save_on_cpu(pin_memory=True):\n"
        "    loss = criterion(model(batch), targets)",
        f"about {size} over PCIe in forward and again in backward, and as much pinned host memory or more",
        apply,
        {"offload": None},
        group="activations",
    )


@proposes
def channels_last(facts: TargetFacts) -> Iterator[Change]:
    """Convolutions that find a kernel for the other layout may need another workspace."""
    if facts.has_convolution and not facts.scenario.edits.channels_last:
        yield Change(
            "channels-last",
            "convolutions in the layout channels_last",
            "model = model.to(memory_format=torch.channels_last)\n"
            "images = images.to(memory_format=torch.channels_last)",
            "faster in half precision, can be slower in fp32",
            lambda s: replace(s, edits=replace(s.edits, channels_last=True)),
            {"channels-last": None},
        )
