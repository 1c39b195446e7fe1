"""Recompute instead of keep: gradient checkpointing, as the model offers it or block by block."""

from __future__ import annotations

import functools
from collections import Counter
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from memlens.errors import UsageError
from memlens.model import Assumption


def enable(model: Any, name: str) -> Assumption:
    """Turn checkpointing on and say how it was done. The model is the simulation's own, never the user's.

    Raises UsageError where a model neither offers it nor has repeated blocks.
    """
    if getattr(model, "supports_gradient_checkpointing", False):
        # the older name warns since transformers 5
        newer = getattr(model, "activation_checkpointing_enable", None)
        (newer or model.gradient_checkpointing_enable)()
        return Assumption("checkpointing as transformers does it", "the model offers it")
    if hasattr(model, "set_grad_checkpointing"):
        model.set_grad_checkpointing(True)
        return Assumption("checkpointing as set_grad_checkpointing() does it", "the model offers it")
    path, blocks = repeated_blocks(model)
    if not blocks:
        raise UsageError(
            f"{name} has no repeated blocks to checkpoint",
            hint="checkpointing wraps the children of a ModuleList or Sequential that repeats one class",
        )
    for block in blocks:
        block.forward = functools.partial(_recomputed, block.forward)
    kind = type(blocks[0]).__name__
    why = "each one recomputes its forward in backward (torch.utils.checkpoint, non-reentrant)"
    return Assumption(f"checkpointing of the {len(blocks)} {kind} in {path or 'the model'}", why)


def _recomputed(forward: Any, *args: Any, **kwargs: Any) -> Any:
    return checkpoint(forward, *args, use_reentrant=False, **kwargs)


def repeated_blocks(model: nn.Module) -> tuple[str, list[nn.Module]]:
    """The list of like blocks that holds most parameters: its path and the blocks.

    A block has children of its own; a Sequential of single layers repeats nothing worth recomputing.
    """
    best: tuple[int, str, list[nn.Module]] = (0, "", [])
    for path, container in model.named_modules():
        if not isinstance(container, (nn.ModuleList, nn.Sequential)):
            continue
        blocks = [child for child in container if next(child.children(), None) is not None]
        kinds = Counter(type(block) for block in blocks)
        if not kinds or kinds.most_common(1)[0][1] < 2:
            continue
        kind = kinds.most_common(1)[0][0]
        alike = [block for block in blocks if type(block) is kind]
        size = sum(p.numel() for block in alike for p in block.parameters())
        if size > best[0]:
            best = (size, path, alike)
    return best[1], best[2]
