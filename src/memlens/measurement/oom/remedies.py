"""What would help when memory ran out: each rule looks whether its change is made already.

A rule is a function from the facts to an `OomHint` or None; RULES is the list, most telling first.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn

from memlens.explanation.oom_cause import Cause
from memlens.measurement.tensors import names
from memlens.model import Category
from memlens.model.gap import Gap
from memlens.model.oom import OomHint
from memlens.units import format_bytes

TELLING = 0.15  # a kind of memory below this share of all is no place to save
NEARLY_ALL = 0.7


@dataclass(frozen=True, slots=True)
class OomFacts:
    """What is known at the moment of failure; `stack` are (file, function) of the frames, innermost first."""

    allocated_bytes: int
    by_category: dict[Category, int]
    device: str = "cuda"  # its type
    asked_bytes: int = 0
    total_bytes: int | None = None
    cause: Cause | None = None
    gap: Gap | None = None
    stack: tuple[tuple[str, str], ...] = ()
    losses: tuple[str, ...] = ()  # who holds scalar tensors whose graphs are alive
    modules: tuple[nn.Module, ...] = field(default=(), repr=False)

    def telling(self, category: Category) -> int:
        """Bytes of a category where it is worth a word, else 0."""
        size = self.by_category.get(category, 0)
        return size if size >= TELLING * max(self.allocated_bytes, 1) else 0


def beyond(facts: OomFacts) -> OomHint | None:
    """No change of anything else makes room for one request that is larger than the device."""
    if facts.total_bytes is None or facts.asked_bytes <= facts.total_bytes:
        return None
    return OomHint(
        f"this one request is larger than the {format_bytes(facts.total_bytes)} that there are: "
        "look at its shape, or work in parts"
    )


def expandable(facts: OomFacts) -> OomHint | None:
    """Only where a replay shows that it helps, or that the memory was there in pieces."""
    if facts.cause is None or facts.cause.expandable_fits is False:
        return None
    if facts.cause.expandable_fits or (facts.cause.fragmented and facts.cause.expandable_fits is not None):
        return OomHint("set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True")
    return None


def kept_losses(facts: OomFacts) -> OomHint | None:
    if not facts.losses:
        return None
    names = ", ".join(name for name in facts.losses if name)
    return OomHint(f"{len(facts.losses)} losses keep their graphs ({names}, ...): keep loss.item() instead")


def no_grad(facts: OomFacts) -> OomHint | None:
    kept = facts.by_category.get(Category.ACTIVATION, 0)
    # activations that a library keeps at module level are in training mode for ever and hold nothing
    training = any(module.training for module in facts.modules if module._parameters)
    if not kept or training or not facts.modules or not torch.is_grad_enabled():
        return None
    return OomHint("the model is in eval mode and still records for backward: use torch.no_grad()", kept)


def checkpointing(facts: OomFacts) -> OomHint | None:
    kept = facts.telling(Category.ACTIVATION)
    frames = (type(thing).__name__ == "_CheckpointFrame" for thing in gc.get_objects())
    if not kept or ("torch.utils.checkpoint" in sys.modules and any(frames)):
        return None
    return OomHint("recompute blocks in backward: torch.utils.checkpoint.checkpoint(block, x)", kept)


def autocast(facts: OomFacts) -> OomHint | None:
    kept = facts.telling(Category.ACTIVATION)
    members = names.members(facts.modules)
    weights = {tensor.dtype for tensor, category, *_ in members if category is Category.PARAMETER}
    if not kept or torch.is_autocast_enabled(facts.device) or weights != {torch.float32}:
        return None
    return OomHint(f"run forward in torch.autocast('{facts.device}', dtype=torch.bfloat16)", kept // 2)


def foreach(facts: OomFacts) -> OomHint | None:
    """The multi-tensor optimizers work on all parameters at once, and need room for a copy."""
    if not any("_multi_tensor_" in function for _, function in facts.stack):
        return None
    size = facts.by_category.get(Category.PARAMETER, 0)
    return OomHint("give the optimizer fused=True, or foreach=False (slower)", size)


def smaller_state(facts: OomFacts) -> OomHint | None:
    size = facts.telling(Category.OPTIMIZER_STATE)
    if not size:
        return None
    return OomHint("an optimizer that keeps less: SGD nothing, Adafactor little, 8-bit Adam a quarter", size)


def others(facts: OomFacts) -> OomHint | None:
    gap = facts.gap
    if gap is None or gap.process_bytes is None or not gap.other_bytes or not gap.used_bytes:
        return None
    if gap.other_bytes < TELLING * gap.used_bytes:
        return None
    return OomHint("other processes use the card: `nvidia-smi` lists them", gap.other_bytes)


def smaller_batch(facts: OomFacts) -> OomHint | None:
    kept = facts.telling(Category.ACTIVATION)
    if not kept:
        return None
    return OomHint(f"a smaller batch: of {format_bytes(kept)} most grows with it")


def larger(facts: OomFacts) -> OomHint | None:
    """What every step needs takes nearly all: no smaller batch makes room."""
    kinds = (Category.PARAMETER, Category.GRADIENT, Category.OPTIMIZER_STATE)
    size = sum(facts.by_category.get(kind, 0) for kind in kinds)
    if size < NEARLY_ALL * facts.allocated_bytes or size < facts.asked_bytes:
        return None
    room = "take a larger card" if facts.device == "cuda" else "take a machine with more memory"
    return OomHint(
        f"weights, gradients and optimizer state hold {format_bytes(size)} whatever the batch: "
        f"share them between devices (FSDP), keep them in lower precision, or {room}"
    )


RULES: tuple[Callable[[OomFacts], OomHint | None], ...] = (
    beyond,
    expandable,
    kept_losses,
    no_grad,
    foreach,
    others,
    autocast,
    checkpointing,
    smaller_state,
    smaller_batch,
    larger,
)


def advise(facts: OomFacts) -> tuple[OomHint, ...]:
    """What every rule has to say."""
    return tuple(advice for rule in RULES if (advice := rule(facts)) is not None)
