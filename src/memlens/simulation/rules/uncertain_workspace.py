"""Scratch memory that a library chooses: what is expected, and how far the peak moves if it chose otherwise.

Many calls become one assumption, written when the simulation ends: `low_bytes` is what the peak would be less
without any of them, `high_bytes` what it would be more if each took the most that its rule allows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from memlens.model import Alloc, Assumption, Category, Event, Free
from memlens.simulation.core.cuda import Cuda

if TYPE_CHECKING:
    from memlens.simulation.core.session import Simulation

Say = Callable[[int], tuple[str, str]]


class Calls:
    """All calls into one library during one simulation."""

    def __init__(self, sim: Simulation, say: Say) -> None:
        self.sim, self.say = sim, say
        self.calls = 0
        self.reached = 0  # the most that a call would bring the allocated bytes to
        self.operators: set[str] = set()

    def note(self, operator: str, expected_bytes: int, high_bytes: int) -> None:
        """A call of `operator` is about to take its workspace."""
        if expected_bytes or high_bytes:
            self.calls += 1
            self.operators.add(operator)
            self.reached = max(self.reached, self.sim.allocator.allocated_bytes + high_bytes)

    def settle(self) -> None:
        if self.calls:
            peak, without = peaks(self.sim.trace.events, self.operators)
            self.sim.assume(Assumption(*self.say(self.calls), without - peak, max(0, self.reached - peak)))


def take(
    cuda: Cuda,
    library: str,
    operator: str,
    expected_bytes: int,
    high_bytes: int,
    say: Say,
    copied_bytes: int = 0,
) -> None:
    """Take a workspace, beside a copy that the call works in, and give both back.

    `say` gets the number of calls and words the assumption. `operator` names the workspaces in the trace.
    """
    sim = cuda.sim
    call = Cuda(sim, operator)
    free = call.hold(copied_bytes)
    calls: Calls | None = sim.notes.get(library)
    if calls is None:
        calls = sim.notes[library] = Calls(sim, say)
        sim.at_end.append(calls.settle)
    calls.note(operator, expected_bytes, high_bytes)
    call.scratch(expected_bytes, category=Category.WORKSPACE)
    free()


def peaks(events: list[Event], operators: set[str]) -> tuple[int, int]:
    """The peak of the allocated bytes, and what it would be without the workspaces of these operators."""
    allocated = plain = peak = peak_plain = 0
    workspaces: set[int] = set()
    sizes: dict[int, int] = {}
    for event in events:
        if type(event) is Alloc:
            sizes[event.id] = event.bytes
            allocated += event.bytes
            if event.category is Category.WORKSPACE and event.site.operator in operators:
                workspaces.add(event.id)
            else:
                plain += event.bytes
            peak, peak_plain = max(peak, allocated), max(peak_plain, plain)
        elif type(event) is Free:
            size = sizes.pop(event.id, 0)
            allocated -= size
            plain -= 0 if event.id in workspaces else size
    return peak, peak_plain
