"""Fewer bytes a number."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from memlens.advice.change import Change, proposes
from memlens.advice.facts import TargetFacts


@proposes
def autocast(facts: TargetFacts) -> Iterator[Change]:
    """Of a model whose weights are fp32 and that is not under autocast yet."""
    if facts.dtype != torch.float32 or facts.scenario.recipe.autocast is not None:
        return
    short = "bf16" if facts.gpu.generation.bf16 else "fp16"
    dtype = {"bf16": "bfloat16", "fp16": "float16"}[short]
    scaler = (
        "" if short == "bf16" or not facts.is_training else "\n# and a torch.amp.GradScaler around backward"
    )
    yield Change(
        f"amp-{short}",
        f"mixed precision: autocast to {short}",
        f'with torch.autocast("cuda", dtype=torch.{dtype}):\n    loss = criterion(model(batch), targets)'
        f"{scaler}",
        "faster on tensor cores; products are rounded to " + ("8 bits" if short == "bf16" else "11 bits"),
        lambda s: replace(s, precision=f"amp-{short}"),
        {"amp": dtype},
        changes_result=True,
        group="precision",
    )


@proposes
def half_weights(facts: TargetFacts) -> Iterator[Change]:
    """All in two bytes a number; in fp16, whose range is small, only where nothing learns."""
    if facts.dtype != torch.float32:
        return
    if not facts.gpu.generation.bf16:
        if not facts.is_training:
            yield Change(
                "fp16-weights", "weights in fp16", "model.half()", "rounding; values beyond 65,504 overflow",
                lambda s: replace(s, precision="fp16"), {"weights": "float16"},
                changes_result=True, group="precision",
            )  # fmt: skip
        return
    yield Change(
        "bf16-weights",
        "weights, gradients and optimizer states in bf16" if facts.is_training else "weights in bf16",
        "model.to(torch.bfloat16)",
        "small updates are lost in weights of 8 significant bits" if facts.is_training else "rounding",
        lambda s: replace(s, precision="bf16"),
        {"weights": "bfloat16"},
        changes_result=True,
        group="precision",
    )
