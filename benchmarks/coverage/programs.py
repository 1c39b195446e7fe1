"""A row of torch's tables, as programs that run on either side."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch

from benchmarks.coverage.places import Prepare, Run


class Program(NamedTuple):
    """One sample: `prepare` puts it on the device that it is given, `run` returns what to look at by name."""

    label: str
    prepare: Prepare
    run: Run


class Case(NamedTuple):
    """One row before it is run; `programs` makes its samples, which may take a while."""

    table: str
    name: str
    variant: str
    dtype: str
    programs: Callable[[], Iterable[Program]]

    @property
    def key(self) -> str:
        return " ".join(filter(None, (self.table, self.name, self.variant, self.dtype)))


def differentiable(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of `value` that a backward pass can start from."""
    for leaf in torch.utils._pytree.tree_leaves(value):
        if isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.grad_fn is not None:
            yield leaf


def backward(outputs: Any) -> None:
    """From every output, with gradients of ones."""
    roots = list(differentiable(outputs))
    if roots:
        torch.autograd.backward(roots, [torch.ones_like(root) for root in roots])


def second_backward(outputs: Any, inputs: Any) -> None:
    """The gradients' own gradients (as a gradient penalty needs them)."""
    roots = list(differentiable(outputs))
    leaves = [
        t for t in torch.utils._pytree.tree_leaves(inputs) if isinstance(t, torch.Tensor) and t.requires_grad
    ]
    if not roots or not leaves:
        return
    ones = [torch.ones_like(root) for root in roots]
    grads = torch.autograd.grad(roots, leaves, ones, create_graph=True, allow_unused=True)
    backward([grad for grad in grads if grad is not None])


def gradients(inputs: Any) -> list[torch.Tensor | None]:
    """`.grad` of every leaf that wants one."""
    leaves = torch.utils._pytree.tree_leaves(inputs)
    return [
        leaf.grad for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad and leaf.is_leaf
    ]


def spread(samples: list[Any], most: int) -> list[tuple[int, Any]]:
    """At most `most` of them with their numbers, evenly from the first to the last."""
    count = len(samples)
    if count <= most:
        return list(enumerate(samples))
    return [(i, samples[i]) for i in sorted({round(k * (count - 1) / (most - 1)) for k in range(most)})]
