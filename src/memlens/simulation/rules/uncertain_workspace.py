"""Sizes that a library chooses: what is expected, and how far the peak moves if it chose otherwise.

Many calls become one assumption, written when the simulation ends. Its range comes from replaying every
allocation with these sizes at their lowest, at their highest, and in between (`allocator/what_if.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from memlens.allocator import Uncertain, spread
from memlens.model import Assumption, Category
from memlens.simulation.core.cuda import Cuda

if TYPE_CHECKING:
    from memlens.simulation.core.session import Simulation

Say = Callable[[int], tuple[str, str]]


class Calls:
    """All calls into one library during one simulation."""

    def __init__(self, sim: Simulation, say: Say) -> None:
        self.sim, self.say = sim, say
        self.sizes: list[Uncertain] = []

    def settle(self) -> None:
        sim = self.sim
        moves = spread(sim.events, sim.allocator.config, self.sizes)
        what, why = self.say(len(self.sizes))
        sim.assume(Assumption(what, why, *moves.reserved_bytes, moves.allocated_bytes))


def take(
    cuda: Cuda,
    library: str,
    operator: str,
    sizes: tuple[int, int, int],
    say: Say,
    copied_bytes: int = 0,
    kind: str = "",
) -> None:
    """Take a workspace, beside a copy that the call works in, and give both back.

    `sizes` are the bytes at least, as expected, and at most. `say` gets the number of calls and words the
    assumption. `operator` names the workspaces in the trace; calls of one `kind` are likely to be alike in
    how far they are off.
    """
    sim = cuda.sim
    call = Cuda(sim, operator)
    low_bytes, expected_bytes, high_bytes = sizes
    free_copy = call.hold(copied_bytes)
    number = len(sim.events)
    free_workspace = call.hold(expected_bytes, Category.WORKSPACE)
    if high_bytes:
        key = sim.ledger.last_id if expected_bytes else 0
        _note(sim, library, Uncertain(number, key, low_bytes, high_bytes, kind), say)
    free_workspace()
    free_copy()


def keep(cuda: Cuda, library: str, bounds: tuple[int, int], say: Say) -> None:
    """The allocation that was made last stays, and has a size that a library chooses: within these bounds."""
    sim = cuda.sim
    _note(sim, library, Uncertain(len(sim.events), sim.ledger.last_id, *bounds), say)


def _note(sim: Simulation, library: str, size: Uncertain, say: Say) -> None:
    calls: Calls | None = sim.notes.get(library)
    if calls is None:
        calls = sim.notes[library] = Calls(sim, say)
        sim.at_end.append(calls.settle)
    calls.sizes.append(size)
