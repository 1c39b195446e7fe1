"""What happens to memory, in order: the events of a `Trace`.

The events are slotted and mutable: a frozen one costs four times as much to make, and a 70-billion-parameter
step makes a hundred thousand. The producers may still change an event while the run goes on (a tensor
turns out to be a gradient); once the trace is returned, its events stay as they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from memlens.model.category import Category
from memlens.model.site import NOWHERE, Site


@dataclass(slots=True, eq=True)
class Alloc:
    """`bytes` became allocated: the block's size, once it is placed; `requested` is what was asked for.

    `id` is unique in the trace. `address` is None until an allocator placed it.
    """

    id: int
    bytes: int
    category: Category = Category.UNKNOWN
    site: Site = NOWHERE
    stream: int = 0
    requested: int = 0
    address: int | None = None
    time_us: int = 0


@dataclass(slots=True, eq=True)
class Free:
    """Allocation `id` was given back to the allocator."""

    id: int
    time_us: int = 0


@dataclass(slots=True, eq=True)
class SegmentAlloc:
    """The allocator got `bytes` more from the driver (cudaMalloc): reserved grows."""

    address: int
    bytes: int
    stream: int = 0
    small: bool = False
    time_us: int = 0


@dataclass(slots=True, eq=True)
class SegmentFree:
    """The allocator gave `bytes` at `address` back to the driver (cudaFree): reserved falls."""

    address: int
    bytes: int
    time_us: int = 0


@dataclass(slots=True, eq=True)
class OutOfMemory:
    """A request of `bytes` failed with `free_bytes` left on the device."""

    bytes: int
    free_bytes: int
    site: Site = NOWHERE
    time_us: int = 0


@dataclass(slots=True, eq=True)
class Sample:
    """One reading of a process's memory. A figure that could not be read is None, never 0."""

    time_us: int
    pid: int
    rss_bytes: int | None = None
    pss_bytes: int | None = None
    uss_bytes: int | None = None
    swap_bytes: int | None = None
    gpu_bytes: int | None = None
    python_bytes: int | None = None  # what Python's own allocators hold (tracemalloc)


# what can be drawn: name of the figure -> (field of Sample, words for people)
FIGURES: dict[str, tuple[str, str]] = {
    "rss": ("rss_bytes", "resident memory (RSS)"),
    "pss": ("pss_bytes", "proportional memory (PSS)"),
    "uss": ("uss_bytes", "private memory (USS)"),
    "swap": ("swap_bytes", "swapped-out memory"),
    "gpu": ("gpu_bytes", "GPU memory"),
    "python": ("python_bytes", "Python's own memory (tracemalloc)"),
}

Event: TypeAlias = Alloc | Free | SegmentAlloc | SegmentFree | OutOfMemory | Sample


@dataclass(slots=True, eq=True)
class Mark:
    """A phase begins here: `name` holds from event number `index` on, until the next mark.

    Phases of a training step are `build`, `inputs`, `forward`, `backward`, `optimizer`; `step` counts
    from 1 (0 before the first). Users' own marks are any other name.
    """

    name: str
    index: int
    step: int = 0
    time_us: int = 0

    @property
    def title(self) -> str:
        """The phase as people name it; a mark that is itself called step is `step 2`.

        >>> Mark("backward", 0, step=2).title, Mark("step", 0, step=2).title, Mark("build", 0).title
        ('backward, step 2', 'step 2', 'build')
        """
        if not self.step:
            return self.name
        return f"step {self.step}" if self.name == "step" else f"{self.name}, step {self.step}"

    @property
    def short_title(self) -> str:
        """`backward 2`: the same where there is little room."""
        return f"{self.name} {self.step}" if self.step else self.name


@dataclass(slots=True, eq=True)
class Span:
    """A function call or a named block of the user's, with the memory of its process at both ends.

    `level` is the depth of nesting, 0 outermost. Times are microseconds of Unix time, as in samples.
    """

    name: str
    started_us: int
    ended_us: int
    start_bytes: int = 0
    end_bytes: int = 0
    level: int = 0
    pid: int = 0
