"""Who holds most at one moment: modules, and source lines for what no module made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from memlens.explanation.held import held_by, largest_first
from memlens.explanation.step_growth import WORTH_SAYING_BYTES
from memlens.model import Alloc, Breakdown, Category, Trace
from memlens.units import format_bytes

TOP = 10


@dataclass(frozen=True, slots=True)
class Holder:
    """A module by its path (the root is the empty one), or a source line where `module` is None.

    `what` is the module's type, or the operator that made most of what the line holds.
    """

    module: str | None
    line: str
    what: str
    bytes: int


@dataclass(frozen=True, slots=True)
class HeldBy:
    """A module and the bytes at the peak that belong to it, its children not included."""

    module: str
    type: str
    bytes: int


def top_holders(held: Breakdown, count: int = TOP) -> tuple[Holder, ...]:
    """The modules and lines that hold most, largest first; libraries' workspaces are nobody's."""

    def owner(alloc: Alloc) -> tuple[str | None, str]:
        module = alloc.site.module
        return (module, "") if module is not None else (None, alloc.site.where)

    owned = [alloc for alloc in held.live if alloc.category is not Category.WORKSPACE]
    whats: dict[tuple[str | None, str], str] = {}
    for alloc in sorted(owned, key=lambda alloc: -alloc.bytes):
        what = alloc.site.operator if alloc.site.module is None else alloc.site.module_type
        whats.setdefault(owner(alloc), what)
    ranked = largest_first(held_by(Breakdown(held.index, tuple(owned)), owner))
    return tuple(
        Holder(module, line, whats[module, line], use.bytes)
        for (module, line), use in ranked
        if module is not None or line
    )[:count]


def build_holders(at_peak: Breakdown, count: int = TOP) -> tuple[HeldBy, ...]:
    """The modules that hold most; the root is the empty path."""
    types: dict[str | None, str] = {}
    for alloc in at_peak.live:
        types.setdefault(alloc.site.module, alloc.site.module_type)
    ranked = largest_first(held_by(at_peak, lambda alloc: alloc.site.module))
    return tuple(HeldBy(module, types[module], use.bytes) for module, use in ranked if module is not None)[
        :count
    ]


def notes(trace: Trace, held: Breakdown) -> Iterator[str]:
    """What stands out, in one sentence each."""
    kept = sum(alloc.bytes for alloc in held.live if alloc.category is Category.ACTIVATION)
    if kept >= WORTH_SAYING_BYTES and not any(mark.name == "backward" for mark in trace.marks):
        yield f"no backward follows: torch.no_grad() around the forward saves up to {format_bytes(kept)}"
