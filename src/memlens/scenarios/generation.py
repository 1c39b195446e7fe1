"""Generating text token by token: the prompt at once, then the key/value cache grows or fills.

A dynamic cache is concatenated anew in every layer at every token, a static one is made for all tokens before
the first. Of many tokens the first and the last are simulated; those between differ only in length.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from memlens.errors import UsageError
from memlens.model import Assumption

CACHES = ("dynamic", "static")
# tokens that are simulated one by one at the beginning and at the end
EDGE = 4


def generate(
    sim: Any, model: Any, ids: torch.Tensor, new_tokens: int, cache: str, progress: Callable[[str], None]
) -> None:
    """`new_tokens` tokens after the prompt `ids` (batch x length), on the device, under `inference_mode`.

    Raises UsageError for a model that keeps no cache of transformers.
    """
    past = make_cache(model, ids.shape[1] + new_tokens, cache)
    sim.mark("forward", step=1)
    progress("the prompt")
    outputs = model(input_ids=ids, past_key_values=past, use_cache=True)
    if getattr(outputs, "past_key_values", None) is None:
        raise UsageError(f"{type(model).__name__} returns no key/value cache, so it cannot generate")
    sim.mark("generation", step=1)
    token = next_token(outputs)
    for number in range(1, new_tokens):
        if number == EDGE and new_tokens > 2 * EDGE and cache == "dynamic":
            lengthen(past, ids.shape[1] + new_tokens - EDGE)
            sim.assume(skipped(new_tokens))
        if EDGE <= number < new_tokens - EDGE:
            continue
        progress(f"token {number + 1} of {new_tokens}")
        outputs = model(input_ids=token, past_key_values=past, use_cache=True)
        token = next_token(outputs)


def make_cache(model: Any, length: int, kind: str) -> Any:
    """A cache of transformers."""
    from transformers import DynamicCache, StaticCache

    if not hasattr(model, "config") or not hasattr(model, "generate"):
        raise UsageError(
            f"{type(model).__name__} is no generating model of transformers",
            hint="--new-tokens is for hf: targets",
        )
    if kind == "dynamic":
        return DynamicCache(config=model.config)
    return StaticCache(config=model.config, max_cache_len=length)


def next_token(outputs: Any) -> torch.Tensor:
    """The likeliest token: batch x 1. As in transformers, the last logits are copied in float32 first."""
    scores = outputs.logits[:, -1, :].to(copy=True, dtype=torch.float32)
    return torch.argmax(scores, dim=-1)[:, None]


def lengthen(past: Any, length: int) -> None:
    """Keys and values of every layer as they are when `length` tokens are in the cache."""
    for layer in past.layers:
        for name in ("keys", "values"):
            before = getattr(layer, name)
            batch, heads, _, size = before.shape
            setattr(layer, name, torch.empty(batch, heads, length, size, dtype=before.dtype, device="cuda"))


def skipped(new_tokens: int) -> Assumption:
    return Assumption(
        f"of {new_tokens} new tokens the first and the last {EDGE} are simulated",
        "between them the cache only grows; what its copies leave behind in the allocator is not all seen",
    )
