"""Who keeps a tensor alive: names that a programmer knows, as data.

>>> print(ReferenceHolder("local variable", "loss", "train, a.py:9", ("list",), "saved by ReluBackward0"))
loss, local variable of train, a.py:9: its autograd graph holds it (saved by ReluBackward0)
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReferenceHolder:
    """One chain of names that ends at the tensor.

    `kind` is where the chain begins: local variable, global variable, notebook output, or exception being
    handled. `expression` leads from there to the tensor, or to the one whose autograd graph or storage holds
    it: then `graph` or `view` says so. `through` are the kinds of things passed: module, list, dict, object,
    closure, traceback, generator, autograd graph, view, gradient.
    """

    kind: str
    expression: str
    where: str = ""
    through: tuple[str, ...] = ()
    graph: str = ""
    view: bool = False

    def __str__(self) -> str:
        text = f"{self.expression}, {self.kind}" if self.expression else self.kind
        if self.where:
            text += f" of {self.where}"
        if self.graph:
            text += f": its autograd graph holds it ({self.graph})"
        elif self.view:
            text += ": a tensor with the same storage"
        return text


@dataclass(frozen=True, slots=True)
class Holders:
    """The chains that were found, the shortest first; `cut` is True where there may be more."""

    holders: tuple[ReferenceHolder, ...]
    cut: bool = False

    def __str__(self) -> str:
        if not self.holders:
            return "nothing that Python can see holds it"
        lines = [str(holder) for holder in self.holders]
        return "\n".join(lines + (["(the search was cut short)"] if self.cut else []))

    def through(self, kind: str) -> tuple[ReferenceHolder, ...]:
        """The chains that pass a thing of this kind, such as "traceback"."""
        return tuple(holder for holder in self.holders if kind in holder.through)
