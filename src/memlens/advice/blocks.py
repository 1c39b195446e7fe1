"""The repeated blocks of a model: what checkpointing and freezing are about."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

# so few blocks that hold blocks themselves are the stages of a net (timm's ConvNeXt and Swin have four), not
# layers that hold a list of experts
MOST_STAGES = 5


def find_blocks(model: nn.Module) -> list[str]:
    """The repeated blocks of a model in order, by path; of stages the blocks inside them.

    A block has children of its own and a sibling of its class in a ModuleList or Sequential.

    >>> layer = lambda: nn.TransformerEncoderLayer(8, 2)
    >>> find_blocks(nn.Sequential(nn.Linear(8, 8), nn.ModuleList([layer(), layer()])))
    ['1.0', '1.1']
    """
    blocks: list[str] = []
    for path, container in model.named_modules():
        if isinstance(container, (nn.ModuleList, nn.Sequential)) and not _is_in_blocks(path, blocks):
            blocks += _blocks_in(path, container)
    return blocks


def _is_in_blocks(path: str, blocks: Sequence[str]) -> bool:
    """Whether `path` is inside one of the blocks, or contains one of them."""
    return any(f"{path}.".startswith(f"{b}.") or (path and b.startswith(f"{path}.")) for b in blocks)


def _blocks_in(path: str, container: nn.Module) -> list[str]:
    """The blocks that `container` itself lists, or those inside them where they are stages."""
    blocks = {
        name: child
        for name, child in container.named_children()
        if next(child.children(), None) is not None and not isinstance(child, (nn.ModuleList, nn.Sequential))
    }
    kinds = Counter(type(child) for child in blocks.values())
    if not kinds or kinds.most_common(1)[0][1] < 2:
        return []
    kind = kinds.most_common(1)[0][0]
    alike = {f"{path}.{name}" if path else name: b for name, b in blocks.items() if type(b) is kind}
    inner = [f"{outer}.{name}" for outer, block in alike.items() for name in find_blocks(block)]
    return inner if inner and len(alike) <= MOST_STAGES else list(alike)


def checkpointing_kind(model: nn.Module, blocks: Sequence[str]) -> str:
    """Who recomputes: "transformers", "timm", "blocks" (one by one); "" where nothing repeats."""
    if getattr(model, "supports_gradient_checkpointing", False):
        return "transformers"
    if hasattr(model, "set_grad_checkpointing"):
        return "timm"
    return "blocks" if blocks else ""


def checkpoint_these(model: Any, paths: Sequence[str]) -> None:
    """Recompute these modules in backward. transformers' own layers have a switch; others are wrapped."""
    chosen = set(paths)
    if any(_is_transformers(module) for module in model.modules()):
        model.gradient_checkpointing_enable()
        for path, module in model.named_modules():
            if _is_transformers(module):
                module.gradient_checkpointing = path in chosen
        return
    for path in paths:
        block = model.get_submodule(path)
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)


def _is_transformers(module: nn.Module) -> bool:
    return any(cls.__name__ == "GradientCheckpointingLayer" for cls in type(module).__mro__)


def checkpointing_code(paths: Sequence[str], kind: str) -> str:
    """What a user writes to recompute exactly these modules."""
    names = ", ".join(f'"{path}"' for path in paths)
    if kind == "transformers":
        return (
            f"model.gradient_checkpointing_enable()\nchosen = {{{names}}}\n"
            "for path, module in model.named_modules():\n"
            "    if isinstance(module, GradientCheckpointingLayer):  # of transformers.modeling_layers\n"
            "        module.gradient_checkpointing = path in chosen"
        )
    return (
        f"for path in [{names}]:\n    block = model.get_submodule(path)\n"
        "    block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)"
    )
