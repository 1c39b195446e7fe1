"""The course of allocations: what was held, and for what, at as many moments as can be drawn.

>>> from memlens.model import Alloc, Category, Free, Trace
>>> trace = Trace("predicted", [Alloc(1, 512, Category.INPUT), Alloc(2, 1024), Free(1)])
>>> series = build_series(trace)
>>> list(series.allocated), list(series.categories[Category.INPUT]), series.axis.unit
([512, 1536, 1024], [512, 512, 0], 'events')
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from memlens.explanation.curves import Curve, sampled_curves
from memlens.model import FIGURES
from memlens.model.category import Category
from memlens.model.events import Alloc, Free, Mark, OutOfMemory, Sample

if TYPE_CHECKING:
    from memlens.model.trace import Trace

ALLOCATED = "allocated"  # the figure of traces of allocations, in addition to FIGURES
WORDS = {**{figure: words for figure, (_, words) in FIGURES.items()}, ALLOCATED: "allocated memory"}

# what lives longest is lowest, so that what comes and goes is seen on top of what stays
STACK = (
    Category.UNKNOWN,
    Category.PARAMETER,
    Category.BUFFER,
    Category.OPTIMIZER_STATE,
    Category.GRADIENT,
    Category.INPUT,
    Category.WORKSPACE,
    Category.COMMUNICATION,
    Category.ACTIVATION,
    Category.TEMPORARY,
)


@dataclass(frozen=True, slots=True)
class Axis:
    """The horizontal axis of a drawing; `per_unit` places make one unit."""

    unit: str
    per_unit: int


SECONDS = Axis("s", 1_000_000)
EVENTS = Axis("events", 1)  # of predictions, which have an order and no times


@dataclass(frozen=True, slots=True)
class Series:
    """Bytes after the events `indices`, at their `places` along the axis; one array a category.

    `reserved` is empty where no segments are known. `events` is of how many events they were taken.
    """

    axis: Axis
    indices: array[int]
    places: array[int]
    allocated: array[int]
    reserved: array[int]
    categories: dict[Category, array[int]]
    events: int

    @property
    def is_thinned(self) -> bool:
        """Whether there are more events than points."""
        return len(self.indices) < self.events


def axis_of(trace: Trace) -> Axis:
    """Seconds where the allocations have times, else their order."""
    return SECONDS if any(event.time_us for event in trace.events if isinstance(event, Alloc)) else EVENTS


def places_of(trace: Trace) -> array[int]:
    """Where each event is along the axis, never before the one in front of it."""
    if axis_of(trace) is EVENTS:
        return array("q", range(len(trace.events)))
    return array("q", accumulate((event.time_us for event in trace.events), max))


def phases_of(trace: Trace) -> list[tuple[Mark, int, int]]:
    """The phases that have events, as in `Trace.phases`, without the two that a recording begins with."""
    first = 2 if trace.metadata.get("baseline_events") else 0
    return [phase for phase in list(trace.phases())[first:] if phase[2] > phase[1]]


def phase_at(trace: Trace, index: int) -> str:
    """`backward, step 2`: the phase that event number `index` falls in; empty where none is known."""
    titles = (mark.title for mark, start, end in phases_of(trace) if start <= index < end)
    return next(titles, "")


def place_of(mark: Mark, places: Sequence[int]) -> int:
    """Where a mark is drawn: with the first event it holds for."""
    return places[min(mark.index, len(places) - 1)] if places else 0


def build_series(trace: Trace, most: int = 4000, window: tuple[int, int] | None = None) -> Series:
    """What was held over time, at some `most` moments.

    Of more events than that, each span of the axis keeps its first and last and the highest and lowest of
    allocated and of reserved: a peak is never left out. `window` is in places, both ends included. Of the
    events that represent what was there before a recording only the last is a moment.
    """
    timeline, places = trace.timeline(), places_of(trace)
    start, end = first_moment(trace), len(places)
    if window is not None:
        start, end = bisect_left(places, window[0], start), bisect_left(places, window[1] + 1, start)
    curves = [series for series in (timeline.allocated, timeline.reserved) if series]
    if end - start <= most:
        indices = array("q", range(start, end))
    else:  # what is seen at once, and what is seen where many events come in a short time
        along = set(pick(places, curves, most // 2, start, end))
        indices = array("q", sorted(along.union(pick(range(end), curves, most // 2, start, end))))
    return Series(
        axis_of(trace),
        indices,
        array("q", (places[i] for i in indices)),
        array("q", (timeline.allocated[i] for i in indices)),
        array("q", (timeline.reserved[i] for i in indices) if timeline.reserved else ()),
        _categories(trace, indices),
        end - start,
    )


def pick(
    places: Sequence[int], curves: Iterable[Sequence[int]], most: int, start: int = 0, end: int | None = None
) -> list[int]:
    """The numbers of up to `most` points that show what all of start..end-1 do.

    >>> pick(range(8), [[0, 0, 9, 0, 0, 0, 0, 1]], 4, 0, 8)
    [0, 2, 7]
    """
    end = len(places) if end is None else end
    curves = list(curves)
    spans = max(most // (2 + 2 * len(curves)), 1)
    first, width = places[start], (places[end - 1] - places[start]) / spans or 1
    chosen: set[int] = set()
    low = start
    for number in range(1, spans + 1):
        high = end if number == spans else bisect_left(places, first + number * width, low, end)
        if high > low:
            chosen |= {low, high - 1}
            for curve in curves:
                part = curve[low:high]
                chosen |= {low + part.index(max(part)), low + part.index(min(part))}
        low = high
    return sorted(chosen)


def _categories(trace: Trace, indices: Sequence[int]) -> dict[Category, array[int]]:
    """Bytes of every category that ever held any, after each of the events `indices`."""
    held = dict.fromkeys(Category, 0)
    held[Category.UNKNOWN] = trace.baseline_allocated_bytes
    curves: dict[Category, array[int]] = {category: array("q") for category in Category}
    live: dict[int, Alloc] = {}
    wanted = iter(indices)
    due = next(wanted, -1)
    for number, event in enumerate(trace.events):
        if isinstance(event, Alloc):
            live[event.id] = event
            held[event.category] += event.bytes
        elif isinstance(event, Free):
            freed = live.pop(event.id)
            held[freed.category] -= freed.bytes
        if number == due:
            for category, sizes in curves.items():
                sizes.append(held[category])
            due = next(wanted, -1)
    return {category: sizes for category, sizes in curves.items() if any(sizes)}


def is_sampled(trace: Trace) -> bool:
    """Whether a trace has readings of processes."""
    return any(isinstance(event, Sample) for event in trace.events)


def holds_allocations(trace: Trace) -> bool:
    """Whether a trace tells of single allocations, or of what was allocated before it began."""
    kinds = (Alloc, OutOfMemory)
    return bool(trace.baseline_allocated_bytes) or any(isinstance(event, kinds) for event in trace.events)


def figure_of(trace: Trace) -> str:
    """What to draw of a trace if no figure is asked for: what the recording was for, or its allocations."""
    if (
        not is_sampled(trace)
        and not trace.processes
        and (holds_allocations(trace) or trace.device is not None)
    ):
        return ALLOCATED
    asked = trace.metadata.get("figure")
    return asked if isinstance(asked, str) and asked in FIGURES else "rss"


def curves_to_draw(trace: Trace, figure: str) -> list[Curve]:
    """The curves to draw: of processes as in `shown`, or allocated and, where it is known, reserved.

    The places of allocations are along `axis_of(trace)`, in microseconds or as numbers of events.

    >>> from memlens.model import Alloc, Trace
    >>> (curve,) = curves_to_draw(Trace("predicted", [Alloc(1, 512)]), "allocated")
    >>> curve.name, curve.peak_bytes
    ('allocated', 512)
    """
    if figure != ALLOCATED:
        return sampled_curves(trace, figure)
    if not holds_allocations(trace):
        return []
    timeline, places, start = trace.timeline(), places_of(trace), first_moment(trace)
    ends = (places[start], places[-1]) if start < len(places) else (0, 0)
    curves = {"allocated": timeline.allocated, "reserved": timeline.reserved}
    return [
        Curve(0, name, None, *ends, places[start:], sizes[start:]) for name, sizes in curves.items() if sizes
    ]


def first_moment(trace: Trace) -> int:
    """The event that a drawing begins with: the last of those that represent what was there before."""
    begun = trace.metadata.get("baseline_events", 0)
    return max(begun - 1, 0) if isinstance(begun, int) else 0
