"""Tensors that another stream uses too: `record_stream`, and when their blocks may be used again.

A block that `record_stream` named waits, once Python lets go of it, until the other stream is done. When that
is only the GPU knows: at once if it is quick, at the latest when the host waits for it. The first is taken,
for a trace has no time; the second is replayed, and what it adds becomes one assumption.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from memlens.allocator import Late, spread
from memlens.model import Assumption
from memlens.simulation.core.ledger import Ledger

if TYPE_CHECKING:
    from torch import Tensor


class RecordedStreams:
    """What one simulation's program recorded, and where its host waited for the device."""

    def __init__(self, ledger: Ledger, assume: Callable[[Assumption], None]) -> None:
        self.ledger, self.assume = ledger, assume
        self.ids: set[int] = set()  # of allocations
        self.waits: list[int] = []  # numbers of events before which the host waited

    def record(self, tensor: Tensor, stream: Any) -> None:
        """`tensor.record_stream(stream)`."""
        entry = self.ledger.of(tensor)
        alloc = None if entry is None else entry.alloc
        if alloc is not None and alloc.stream != stream.stream_id:
            self.ids.add(alloc.id)

    def wait(self) -> None:
        """The host waits until the device has done everything."""
        self.waits.append(len(self.ledger.events))

    def settle(self) -> None:
        """State what was recorded, if anything was; called when the simulation has ended."""
        if not self.ids:
            return
        late = Late(frozenset(self.ids), self.waits)
        moves = spread(self.ledger.events, self.ledger.allocator.config, late=late)
        self.assume(
            Assumption(
                f"{len(self.ids):,} tensors that record_stream names return when Python lets go of them",
                "when the other stream is done only the GPU knows, at the latest when the host waits for it",
                *moves.reserved_bytes,
                moves.allocated_bytes,
            )
        )
