"""Train less of the model."""

from __future__ import annotations

from collections.abc import Iterator

from torch import nn

from memlens.advice.change import Change, proposes, with_model_edit
from memlens.advice.facts import TargetFacts
from memlens.advice.shims.lora import RANK, add_lora

# a model this small is not fine-tuned in parts
WORTH_FREEZING = 1_000_000


def _may_freeze(facts: TargetFacts) -> bool:
    whole = facts.trainable == facts.parameters  # what is frozen in part already is left as it is
    return facts.is_training and whole and facts.parameters > WORTH_FREEZING


@proposes
def freeze(facts: TargetFacts) -> Iterator[Change]:
    """All but the last layer, or the first half of the blocks and what comes before them."""
    if not _may_freeze(facts) or not facts.last_layer:
        return
    last = facts.last_layer

    def only_last(model: nn.Module) -> None:
        model.requires_grad_(False)
        model.get_submodule(last).requires_grad_(True)

    yield Change(
        "freeze-body",
        f"only {last} trained, everything else frozen",
        f'model.requires_grad_(False)\nmodel.get_submodule("{last}").requires_grad_(True)',
        "only for a pretrained model",
        with_model_edit(only_last),
        {"freeze-body": last},
        changes_result=True,
        group="trained",
    )
    if len(facts.blocks) < 2:
        return
    first_kept = facts.blocks[len(facts.blocks) // 2].path

    def half(model: nn.Module) -> None:
        for parameter in before(model, first_kept):
            parameter.requires_grad_(False)

    yield Change(
        "freeze-half",
        f"what comes before {first_kept} frozen",
        "for name, parameter in model.named_parameters():\n"
        f'    if name.startswith("{first_kept}."):\n        break\n    parameter.requires_grad_(False)',
        "only for a pretrained model",
        with_model_edit(half),
        {"freeze-before": first_kept},
        changes_result=True,
        group="trained",
    )


def before(model: nn.Module, path: str) -> Iterator[nn.Parameter]:
    """The parameters that a model defines before those of the module at `path`."""
    for name, parameter in model.named_parameters():
        if name.startswith(path + "."):
            return
        yield parameter


@proposes
def lora(facts: TargetFacts) -> Iterator[Change]:
    """Low-rank pairs on every linear layer but the head."""
    if not _may_freeze(facts) or facts.linears < 2:
        return
    skip = facts.head.path if facts.head else facts.last_layer
    yield Change(
        "lora",
        f"LoRA of rank {RANK} on the linear layers, their weights frozen",
        "from peft import LoraConfig, get_peft_model\n"
        f'model = get_peft_model(model, LoraConfig(r={RANK}, target_modules="all-linear"))',
        "only for a pretrained model; two thin products more in each layer",
        with_model_edit(lambda model: add_lora(model, skip)),
        {"lora": skip},
        changes_result=True,
        group="trained",
    )
