"""One card, as predictions see it."""

from __future__ import annotations

from dataclasses import dataclass

from memlens.devices.generations import Generation, generation_of
from memlens.model.trace import Device


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card.

    `name` is the driver's, with the memory added where one name is sold with several sizes. `memory_bytes`
    is the smallest total_memory that torch is known to report for it, `memory_range` the smallest and the
    largest; `context_bytes` is (low, expected, high), held outside PyTorch's allocator. `verified` is False
    where no reading of this very card was found. `note` says what was chosen when the name that was asked
    for fits several cards.
    """

    name: str
    memory_bytes: int
    memory_range: tuple[int, int]
    compute_capability: tuple[int, int]
    multiprocessors: int
    cublas_workspace_bytes: int
    context_bytes: tuple[int, int, int]
    aliases: tuple[str, ...]
    source: str
    context_source: str
    verified: bool
    nominal_gb: int
    vendor: str = "nvidia"
    note: str = ""

    def device(self) -> Device:
        """What a `Trace` keeps of the card."""
        return Device(self.name, self.memory_bytes, self.compute_capability, self.context_bytes)

    @property
    def generation(self) -> Generation:
        """What it has in common with all cards of its compute capability."""
        return generation_of(self.compute_capability)
