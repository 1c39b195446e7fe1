"""LoRA on the linear layers of a model: low-rank pairs are trained, the weights are frozen."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

RANK = 16


def add_lora(model: nn.Module, skip: str = "", rank: int = RANK) -> None:
    """Freeze everything and give each `nn.Linear` except `skip` a trainable pair of rank `rank`.

    As peft does it: the pair is fp32 whatever the weight is, the input is cast to it and its product is
    added to the layer's own output (peft/tuners/lora/layer.py, Linear.forward, without dropout).
    """
    model.requires_grad_(False)
    for path, module in model.named_modules():
        sizes = columns(module)
        if sizes is None or path == skip:
            continue
        in_features, out_features = sizes
        module.lora_a = nn.Parameter(torch.empty(rank, in_features))
        module.lora_b = nn.Parameter(torch.empty(out_features, rank))
        module.forward = functools.partial(_forward, module, module.forward)


def columns(module: nn.Module) -> tuple[int, int] | None:
    """(inputs, outputs) of a linear layer; None for others. transformers' Conv1D is one, transposed."""
    if type(module) is nn.Linear:
        return module.in_features, module.out_features
    weight = getattr(module, "weight", None)
    if type(module).__name__ == "Conv1D" and isinstance(weight, Tensor) and weight.ndim == 2:
        return int(weight.shape[0]), int(weight.shape[1])
    return None


def _forward(module: Any, own: Any, x: Tensor) -> Tensor:
    out: Tensor = own(x)
    low = functional.linear(x.to(module.lora_a.dtype), module.lora_a)
    return out + functional.linear(low, module.lora_b).to(out.dtype)
