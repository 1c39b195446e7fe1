"""Tensors that another stream uses too: `record_stream`, and when their blocks may be used again.

A block that `record_stream` named waits, once Python lets go of it, until the other stream is done. When that
is only the GPU knows: at once if it is quick, at the latest when the host waits for it. The first is taken,
for a trace has no time; the second is replayed, and what it adds becomes one assumption.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memlens.allocator import Late, spread
from memlens.model import Assumption

if TYPE_CHECKING:
    from torch import Tensor

    from memlens.simulation.core.session import Simulation


class RecordedStreams:
    """What one simulation's program recorded, and where its host waited for the device."""

    def __init__(self, sim: Simulation) -> None:
        self.sim = sim
        self.ids: set[int] = set()  # of allocations
        self.waits: list[int] = []  # numbers of events before which the host waited

    def record(self, tensor: Tensor, stream: Any) -> None:
        """`tensor.record_stream(stream)`."""
        entry = self.sim.ledger.of(tensor)
        alloc = None if entry is None else entry.alloc
        if alloc is not None and alloc.stream != stream.stream_id:
            if not self.ids:
                self.sim.at_end.append(self.settle)
            self.ids.add(alloc.id)

    def wait(self) -> None:
        """The host waits until the device has done everything."""
        self.waits.append(len(self.sim.events))

    def settle(self) -> None:
        sim = self.sim
        moves = spread(sim.events, sim.allocator.config, late=Late(frozenset(self.ids), self.waits))
        self.sim.assume(
            Assumption(
                f"{len(self.ids):,} tensors that record_stream names return when Python lets go of them",
                "when the other stream is done only the GPU knows, at the latest when the host waits for it",
                *moves.reserved_bytes,
                moves.allocated_bytes,
            )
        )
