"""The tree of a forward while it grows: calls, what they returned, and what autograd keeps of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import nn

if TYPE_CHECKING:
    from memlens.simulation.core.ledger import Storage

Shape = tuple[int, ...]
Spec = tuple[Shape, torch.dtype]


@dataclass(slots=True, eq=False)
class Saved:
    """One storage that autograd keeps for backward, as the first operator that saved it saw it."""

    node: Node
    shape: Shape
    dtype: torch.dtype
    nbytes: int
    key: int
    entry: Storage | None  # None: a tensor on the host, mostly a scalar
    allocation: int | None = None
    held: bool = False  # by the graph, not as a saved tensor


@dataclass(slots=True)
class Level:
    """An amount that goes up and down, and the most it was."""

    now: int = 0
    most: int = 0

    def change(self, more: int) -> None:
        self.now += more
        self.most = max(self.most, self.now)


@dataclass(slots=True, eq=False)
class Node:
    """One row in the making. `depth` counts calls from the model, which is 0."""

    kind: str  # "module" or "operator"
    path: str
    type: str
    depth: int
    key: Any = None  # of calls that look alike: the module or function, and the shapes of its inputs
    parent: Node | None = None
    module: nn.Module | None = None
    absorbs: bool = False  # its operators are its own
    calls: int = 0
    inputs: tuple[Spec, ...] = ()
    returns: list[tuple[Spec, ...]] = field(default_factory=list)  # of calls that differ
    allocates: bool = False
    output_bytes: int = 0
    own: Level = field(default_factory=Level)
    below: Level = field(default_factory=Level)
    macs: int = 0
    saved: list[Saved] = field(default_factory=list)
    children: list[Node] = field(default_factory=list)
    merged_into: Node | None = None

    def walk(self) -> Iterator[Node]:
        """Itself and all below, in the order in which they were first called."""
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def outputs(self) -> list[Spec]:
        """Every tensor of a call, and of further calls only where they returned something else."""
        return [spec for returned in self.returns for spec in returned]

    @property
    def has_cost(self) -> bool:
        """Whether it needs memory or work at all: an operator that makes a view does not."""
        return self.kind == "module" or bool(self.allocates or self.macs or self.saved or self.children)

    @property
    def final(self) -> Node:
        """The node into which this call was merged, or itself."""
        node = self
        while node.merged_into is not None:
            node = node.merged_into
        return node

    def holds(self, more: int) -> None:
        """`more` bytes (less if negative) are allocated by this node, and so by all above it."""
        self.own.change(more)
        node: Node | None = self
        while node is not None:
            node.below.change(more)
            node = node.parent


class Output(NamedTuple):
    """A tensor that a module returned; `storage` identifies its memory, None on the host."""

    shape: Shape
    dtype: torch.dtype
    storage: int | None


@dataclass(slots=True)
class Call:
    """One call of a module, in the order of completion, for the tools that count calls."""

    module: nn.Module
    node: Node
    output: Any  # Outputs in lists and dicts, nested as the module returned them
    takes_tensor: bool  # whether its first argument is one


@dataclass(frozen=True, slots=True)
class KeptTensor:
    """A storage that a row keeps for backward. `what` is activation, input, buffer, host or held.

    `source` is the path of the row that returned it, None where the row made it inside itself.
    """

    shape: Shape
    dtype: str
    bytes: int
    what: str
    source: str | None = None
