"""What autograd keeps for backward: a walk over the graph behind the tensors that are alive.

Saved tensors are read as they lie there (`_raw_saved_*`): no unpack hook of the user's is called, nothing is
copied, and a graph that was released or written to in place says nothing instead of raising.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

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


class SavedForBackward(NamedTuple):
    """Saved tensors, each with its node's name (`ReluBackward0`), and the leaves of the graphs."""

    tensors: list[Tensor]
    nodes: list[str]
    leaves: list[Tensor]


class Graphs:
    """The tensors that graphs keep, told once: what lies behind an end that was walked is not walked again.

    A graph never changes behind a node, and a node that was read before is not read again. A node is known by
    its type and the number that autograd counts up in each thread. Two threads that build graphs at once may
    use a number twice; of two such nodes of one type the second would not be read.

    `again`: walk everything each time, for leaves that no other way leads to.
    """

    def __init__(self) -> None:
        self._read: set[tuple[type, int]] = set()
        self._ends: set[tuple[int, type, int]] = set()
        self.again = False

    def saved(self, ends: Iterable[tuple[Tensor, Any]]) -> SavedForBackward:
        """What was not told before. `ends` are the tensors alive that have a node."""
        walked, self._ends = self._ends, set()
        roots = []
        for tensor, node in ends:
            end = id(tensor), type(node), node._sequence_nr()
            self._ends.add(end)
            if self.again or end not in walked:
                roots.append(node)
        return self._walk(roots) if roots else SavedForBackward([], [], [])

    def _walk(self, roots: list[Any]) -> SavedForBackward:
        """As `walk`, written out: it passes every node of a new graph."""
        tensors, nodes, leaves = walked = SavedForBackward([], [], [])
        before = self._read
        read = self._read = set()
        seen, slots_of = set(roots), _SLOTS.get
        stack = list(seen)
        while stack:
            node = stack.pop()
            kind = type(node)
            slots = slots_of(kind)
            if slots is None:
                slots = _slots(kind)
            if slots:
                known = kind, node._sequence_nr()
                read.add(known)
                if known not in before:
                    kept = kept_by(node, slots)
                    tensors += kept
                    nodes += [kind.__name__] * len(kept)
            elif kind.__name__ == LEAF:
                leaves.append(node.variable)
                continue
            for following, _ in node.next_functions:
                if following is not None and following not in seen:
                    seen.add(following)
                    stack.append(following)
        return walked


def kept_by(node: Any, slots: Sequence[str] | None = None) -> list[Tensor]:
    """The tensors that one node saved for its backward, in attributes of these names."""
    tensors = []
    for slot in _slots(type(node)) if slots is None else slots:
        try:
            raw = getattr(node, slot)
        except RuntimeError:  # a custom function's, after its backward
            continue
        # None was freed; what a pack hook made of a tensor is a Python object, and the census sees it
        items = raw if type(raw) is tuple else (raw,)
        tensors += [tensor for item in items if isinstance(tensor := item.data, Tensor)]
    return tensors


def _slots(kind: type) -> tuple[str, ...]:
    """The attributes of a type of node that hold saved tensors."""
    slots = _SLOTS.get(kind)
    if slots is None:
        slots = _SLOTS[kind] = tuple(name for name in dir(kind) if name.startswith("_raw_saved_"))
    return slots
