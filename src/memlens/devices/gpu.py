"""One card, as predictions see it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from memlens.devices.generations import Generation, generation_of
from memlens.model.trace import Device


@dataclass(frozen=True, slots=True)
class Context:
    """What a process holds outside PyTorch's allocator: (low, expected, high), and without cuDNN.

    `note` says of a card's own figures where they come from, in place of `source`.
    """

    all_bytes: tuple[int, int, int]
    plain_bytes: tuple[int, int, int]
    source: str
    note: str = ""

    def of(self, has_cudnn: bool) -> tuple[int, int, int]:
        """The range for a program that loads cuDNN, or for one that does not."""
        return self.all_bytes if has_cudnn else self.plain_bytes


@dataclass(frozen=True, slots=True)
class Gpu:
    """One card.

    `name` is the driver's, with the memory added where one name is sold with several sizes. `memory_bytes`
    is the smallest total_memory that torch is known to report for it, `memory_range` the smallest and the
    largest. `verified` is False where no reading of this very card was found. `note` says what was chosen
    when the name that was asked for fits several cards.
    """

    name: str
    memory_bytes: int
    memory_range: tuple[int, int]
    compute_capability: tuple[int, int]
    multiprocessors: int
    cublas_workspace_bytes: int
    context: Context
    aliases: tuple[str, ...]
    source: str
    verified: bool
    nominal_gb: int
    vendor: str = "nvidia"
    note: str = ""

    @property
    def context_bytes(self) -> tuple[int, int, int]:
        """(low, expected, high) of a program that loads what programs usually load."""
        return self.context.all_bytes

    def device(self, has_cudnn: bool = True) -> Device:
        """What a `Trace` keeps of the card."""
        context = self.context
        return Device(
            self.name, self.memory_bytes, self.compute_capability, context.of(has_cudnn), context.note
        )

    def with_context(self, size_bytes: int) -> Gpu:
        """The same card with a context that is known."""
        sizes = (size_bytes,) * 3
        return replace(self, context=Context(sizes, sizes, "given", "as given"))

    @property
    def generation(self) -> Generation:
        """What it has in common with all cards of its compute capability."""
        return generation_of(self.compute_capability)
