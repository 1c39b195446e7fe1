"""Scores and cross-entropy a few rows at a time: the scores of a whole batch never exist at once."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from memlens.advice.facts import Head
from memlens.scenarios.losses import first_tensor

CHUNK_ROWS = 1024
IGNORED = -100  # functional.cross_entropy's own ignore_index


class ChunkedLoss:
    """The head gives its input through; the loss multiplies chunk by chunk and recomputes in backward."""

    def __init__(self, head: Head) -> None:
        self.head = head
        self.layer: nn.Linear | None = None
        self.target: Tensor | None = None

    def edit(self, model: Any) -> None:
        """Take the head out of the model, and its loss where it computes one."""
        layer = model.get_submodule(self.head.path)
        self.layer, self.target = layer, None
        layer.forward = lambda hidden: hidden
        if self.head.inside_model:
            model.loss_function = self.of_labels

    def __call__(self, outputs: Any) -> Tensor:
        hidden = first_tensor(outputs).flatten(0, 1)
        if self.target is None:
            self.target = torch.zeros(hidden.shape[0], dtype=torch.int64, device=hidden.device)
        return self._loss(hidden, self.target)

    def of_labels(self, logits: Tensor, labels: Tensor, **_: Any) -> Tensor:
        """As transformers calls a causal model's loss: labels are shifted by one."""
        shifted = functional.pad(labels, (0, 1), value=IGNORED)[..., 1:].contiguous()
        return self._loss(logits.flatten(0, 1), shifted.flatten())

    def _loss(self, hidden: Tensor, target: Tensor) -> Tensor:
        assert self.layer is not None
        weight, bias = self.layer.weight, self.layer.bias
        chunks = zip(hidden.split(CHUNK_ROWS), target.split(CHUNK_ROWS), strict=True)
        losses = [checkpoint(_sum, rows, weight, bias, right, use_reentrant=False) for rows, right in chunks]
        return torch.stack(losses).sum() / target.numel()


def _sum(rows: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor) -> Tensor:
    return functional.cross_entropy(functional.linear(rows, weight, bias).float(), target, reduction="sum")
