"""Attention that writes its scores to memory, and the switch that models have to make it not do so."""

from __future__ import annotations

import functools
from typing import Any

from torch import nn

# what a user writes to turn the switch
HOW = {
    "transformers": 'model.set_attn_implementation("sdpa")  # or from_pretrained(..., '
    'attn_implementation="sdpa")',
    "timm": "for module in model.modules():\n    if hasattr(module, 'fused_attn'):\n"
    "        module.fused_attn = True",
    "weights": "attention(query, key, value, need_weights=False)  # at every call of nn.MultiheadAttention",
}


def attention_switch(model: nn.Module) -> str:
    """The kind of switch that is off: a key of HOW, or "" where there is none to turn."""
    config = getattr(model, "config", None)
    if getattr(config, "_attn_implementation", None) == "eager" and getattr(model, "_supports_sdpa", False):
        return "transformers"
    if any(getattr(module, "fused_attn", None) is False for module in model.modules()):
        return "timm"
    inside = {
        child
        for layer in model.modules()
        if isinstance(layer, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer))
        for child in layer.modules()
    }  # these ask for no weights themselves
    if any(isinstance(module, nn.MultiheadAttention) and module not in inside for module in model.modules()):
        return "weights"
    return ""


def turn(kind: str, model: Any) -> None:
    """Turn the switch of that kind on a model of the simulation's own."""
    if kind == "transformers":
        model.set_attn_implementation("sdpa")
        return
    module: Any
    for module in model.modules():
        if kind == "timm" and getattr(module, "fused_attn", None) is False:
            module.fused_attn = True
        elif kind == "weights" and isinstance(module, nn.MultiheadAttention):
            forward = functools.partial(_without_weights, module.forward)
            module.forward = forward  # type: ignore[method-assign]


def _without_weights(forward: Any, *args: Any, **kwargs: Any) -> Any:
    return forward(*args[:4], **{**kwargs, "need_weights": False})
