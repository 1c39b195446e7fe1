"""What autograd keeps for backward: a walk over the graph behind the tensors that are alive.

Saved tensors are read as they lie there (`_raw_saved_*`): no unpack hook of the user's is called, nothing is
copied, and a graph that was released or written to in place says nothing instead of raising.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor

LEAF = "AccumulateGrad"


_SLOTS: dict[type, tuple[str, ...]] = {}  # a type of node -> its attributes that hold saved tensors


def walk(roots: Iterable[Any]) -> Iterator[Any]:
    """Every node that can be reached from the `grad_fn`s given, each once."""
    stack = list(roots)
    seen = set(stack)
    while stack:
        node = stack.pop()
        yield node
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                stack.append(following)


class Graphs:
    """The tensors that graphs keep, told once: a node that was read before is not read again.

    A node is known by its type and the number that autograd counts up in each thread. Two threads that build
    graphs at once may use a number twice; of two such nodes of one type the second would not be read.
    """

    def __init__(self) -> None:
        self._read: set[tuple[type, int]] = set()

    def saved(self, roots: Iterable[Any]) -> Iterator[tuple[Tensor, str]]:
        """What was not told before: a tensor and the node that keeps it, `ReluBackward0`.

        A leaf whose gradient will be written comes every time, with `AccumulateGrad`.
        """
        before = self._read
        read = self._read = set()
        for node in walk(roots):
            kind = type(node)
            slots = _SLOTS.get(kind)
            if slots is None:
                slots = _slots(kind)
            if slots:
                known = kind, node._sequence_nr()
                read.add(known)
                if known not in before:
                    for tensor in kept_by(node):
                        yield tensor, kind.__name__
            elif kind.__name__ == LEAF:
                yield node.variable, LEAF


def kept_by(node: Any) -> Iterator[Tensor]:
    """The tensors that one node saved for its backward."""
    for slot in _slots(type(node)):
        try:
            raw = getattr(node, slot)
        except RuntimeError:  # a custom function's, after its backward
            continue
        for item in raw if type(raw) is tuple else (raw,):
            # None was freed; what a pack hook made of a tensor is a Python object, and the census sees it
            if isinstance(tensor := item.data, Tensor):
                yield tensor


def _slots(kind: type) -> tuple[str, ...]:
    """The attributes of a type of node that hold saved tensors."""
    slots = _SLOTS.get(kind)
    if slots is None:
        slots = _SLOTS[kind] = tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))
    return slots
