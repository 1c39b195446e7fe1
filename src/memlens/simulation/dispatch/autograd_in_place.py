"""What autograd's engine does in place, except where a dispatch mode watches.

Two places of PyTorch ask `isTensorSubclassLike`, which is true of every tensor while a dispatch mode is
active, and then allocate where they otherwise would not:

- torch/csrc/autograd/input_buffer.cpp, `accumulate`: the sum of two gradients that meet is written into the
  first one if nobody else holds it;
- torch/csrc/autograd/FunctionsManual.cpp: derivative formulas fill fresh zeros by `scatter_`, `scatter_add_`
  and the like.

Both are told apart from other additions by who calls (the engine itself, no Python function) and by reference
counts, whose value for "nobody else holds it" is found once by making such a sum.
"""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from memlens.simulation.rules.facts import ACCUMULATES, IN_NODES

if TYPE_CHECKING:
    from memlens.simulation.core.ledger import Ledger

_ENGINE = torch.autograd.graph._engine_run_backward.__code__


def counts(tensor: Any) -> tuple[int, int]:
    """References to the tensor and to its storage, as seen from inside a dispatch handler."""
    return tensor._use_count(), torch._C._storage_Use_Count(tensor.untyped_storage()._cdata)


class _Watch(TorchDispatchMode):
    """Notes the counts of the first gradient when two meet."""

    seen: tuple[int, int] | None = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is ACCUMULATES and torch._C._current_autograd_node() is not None:
            self.seen = self.look(args)
        return func(*args, **(kwargs or {}))

    def look(self, args: Any) -> tuple[int, int]:
        return counts(args[0])


@functools.cache
def unshared() -> tuple[int, int]:
    """The counts of a gradient that only the engine's buffer holds."""
    with torch.enable_grad(), _Watch() as watch:
        x = torch.empty(4, device="meta", requires_grad=True)
        y = x.exp()
        (y.sin() + y.cos()).sum().backward()
    assert watch.seen is not None, "two gradients met and nobody saw it"
    return watch.seen


def called_by_engine(depth: int) -> bool:
    """Whether the handler `depth` frames up was called by the engine itself, not by a Python backward."""
    frame = sys._getframe(depth).f_back
    return frame is not None and frame.f_code is _ENGINE


def in_place(ledger: Ledger, func: Any, args: tuple[Any, ...], node: Any) -> bool:
    """Whether the engine would write the result of `func` into its first argument."""
    first = args[0]
    entry = ledger.of(first)
    if entry is None or torch.is_grad_enabled():
        return False
    if not node.name().startswith(IN_NODES.get(func, "")):
        return False
    if func is ACCUMULATES:
        return _is_dense(first, entry.nbytes) and entry.node != node._sequence_nr() and _is_unshared(first)
    return entry.node == node._sequence_nr()


def _is_unshared(tensor: Tensor) -> bool:
    uses, storages = counts(tensor)
    most_uses, most_storages = unshared()
    return uses <= most_uses and storages <= most_storages


def _is_dense(tensor: Tensor, nbytes: int) -> bool:
    """Every byte of the storage belongs to exactly one element."""
    return tensor.numel() * tensor.element_size() == nbytes and 0 not in tensor.stride()
