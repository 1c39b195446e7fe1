"""What the run as it is shows about what could be changed."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from memlens.devices import Gpu
from memlens.explanation.prediction import Prediction
from memlens.model import Category
from memlens.scenarios.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Block:
    """One of the repeated blocks of a model, in the order in which they run.

    `kept_bytes` is what forward leaves for backward inside it, `flops` what its forward takes, 0 where
    nothing in it multiplies.
    """

    path: str
    kept_bytes: int
    flops: int


@dataclass(frozen=True, slots=True)
class Head:
    """The layer that makes the token scores: its path, how many there are, and whose loss takes them."""

    path: str
    vocabulary: int
    inside_model: bool  # the model computes the loss itself (transformers)


@dataclass(frozen=True)
class TargetFacts:
    """The scenario as it is, what it needs, and what was seen of its model.

    `attention` names the switch from materialised to fused attention that the model has, "" where there is
    none or it is on. `in_place` are the activations that may overwrite their input without harm.
    """

    scenario: Scenario
    base: Prediction
    gpu: Gpu
    dtype: torch.dtype
    blocks: tuple[Block, ...]
    flops: int  # of one forward, blocks included
    kept_bytes: int  # what forward leaves for backward
    checkpointing: str  # who does it: "transformers", "timm", "blocks"; "" where nothing repeats
    has_batch_norm: bool
    blocks_have_batch_norm: bool
    has_convolution: bool  # of images
    fixed_batch: bool  # an input was given with its batch
    attention: str
    keeps_cache: bool  # a transformers model fills a key-value cache while it trains
    in_place: tuple[str, ...]
    linears: int
    parameters: int
    trainable: int
    last_layer: str
    head: Head | None

    @property
    def is_training(self) -> bool:
        return self.scenario.is_training

    def held_bytes(self, category: Category) -> int:
        """Bytes of a category at the peak."""
        return self.base.breakdown.get(category, 0)
