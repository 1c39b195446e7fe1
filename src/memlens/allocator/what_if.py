"""The same allocations with other sizes: what the allocator would have made of them.

Reserved memory is no sum. A larger workspace may leave a hole that a later tensor fits, and a smaller one may
be cut from a block that was needed whole. So what an uncertain size does to the peak is not its own
difference: all allocations are replayed, once for every way in which the sizes may turn out.

>>> from memlens.allocator import AllocatorConfig
>>> workspace, tensor = Alloc(1, 30 << 20), Alloc(2, 20 << 20)
>>> never = Uncertain(0, id=1, low_bytes=0, high_bytes=30 << 20)  # it may not be taken at all
>>> spread([workspace, Free(1), tensor], AllocatorConfig(), [never]).reserved_bytes
(-10485760, 0)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import NamedTuple

from memlens.allocator.blocks import Block
from memlens.allocator.config import AllocatorConfig
from memlens.allocator.replay import is_empty_cache
from memlens.allocator.simulator import CachingAllocator
from memlens.allocator.statistics import PeaksOnly
from memlens.model import Alloc, Event, Free, SegmentFree

_FREE, _EMPTY_CACHE, _WAIT = -1, -2, -3  # where a size stands otherwise
_OTHER_STREAM = -1


class Uncertain(NamedTuple):
    """An allocation whose size is a range. Zero at either end: it may not be made at all.

    `before` is the event before which it happens and `id` that of its `Alloc`. Where none was expected there
    is no such event, `id` is 0, and it is given back at once, or before the event `until`. What decides the
    size decides that of all allocations of this `kind`.
    """

    before: int
    id: int
    low_bytes: int
    high_bytes: int
    kind: str = ""
    until: int = 0


class Late(NamedTuple):
    """Allocations whose blocks may be used again later than they are freed: when the host has waited.

    `waits` are the numbers of the events before which it does.
    """

    ids: frozenset[int] = frozenset()
    waits: Sequence[int] = ()


_NEVER_LATE = Late()


class Peaks(NamedTuple):
    """The highest figures of one replay."""

    allocated_bytes: int
    reserved_bytes: int


@dataclass(frozen=True, slots=True)
class Spread:
    """How far below (negative) and above what was expected the peaks may be."""

    allocated_bytes: tuple[int, int] = (0, 0)
    reserved_bytes: tuple[int, int] = (0, 0)


def spread(
    events: Sequence[Event],
    config: AllocatorConfig,
    sizes: Sequence[Uncertain] = (),
    late: Late = _NEVER_LATE,
) -> Spread:
    """What sizes within their ranges, and frees that come late, do to the peaks on a card that never fills.

    The extremes of the replays with every size as expected, at its lowest, at its highest, and with one kind
    at its highest while the others are as expected: larger sizes do not always need more.
    """
    if all(size.low_bytes == size.high_bytes for size in sizes) and not late.ids:
        return Spread()
    stream = _Stream(events, replace(config, per_process_memory_fraction=1.0), sizes, late)
    expected = stream.peaks({})
    others = [stream.peaks(choice) for choice in _choices(stream.sizes)]
    if late.ids:
        others.append(stream.peaks({}, late.ids))
    allocated = [peaks.allocated_bytes - expected.allocated_bytes for peaks in others]
    reserved = [peaks.reserved_bytes - expected.reserved_bytes for peaks in others]
    return Spread((min(0, *allocated), max(0, *allocated)), (min(0, *reserved), max(0, *reserved)))


def _choices(sizes: Mapping[int, Uncertain]) -> Iterator[dict[int, int]]:
    """Ways in which the sizes may turn out together, each by the id of an allocation."""
    yield {key: size.low_bytes for key, size in sizes.items()}
    yield {key: size.high_bytes for key, size in sizes.items()}
    kinds = sorted({size.kind for size in sizes.values()})
    for kind in kinds if len(kinds) > 1 else ():
        yield {key: size.high_bytes for key, size in sizes.items() if size.kind == kind}


# a step of a replay: the id of an allocation, bytes asked for or one of the above, stream
_Step = tuple[int, int, int]


class _Stream:
    """The allocations of a trace, ready to be replayed many times."""

    def __init__(
        self, events: Sequence[Event], config: AllocatorConfig, sizes: Sequence[Uncertain], late: Late
    ) -> None:
        self.config = config
        # one that is not there gets a negative id of its own
        self.sizes = {size.id or -1 - number: size for number, size in enumerate(sizes)}
        added = [*self._added(), *((number, (0, _WAIT, 0)) for number in late.waits)]
        added.sort(key=itemgetter(0), reverse=True)  # what is at the same place stays in order, reversed
        self.steps: list[_Step] = []
        for number, event in enumerate(events):
            while added and added[-1][0] <= number:
                self.steps.append(added.pop()[1])
            match event:
                case Alloc():
                    self.steps.append((event.id, event.requested or event.bytes, event.stream))
                case Free():
                    self.steps.append((event.id, _FREE, 0))
                case SegmentFree() if is_empty_cache(events, number):
                    self.steps.append((0, _EMPTY_CACHE, 0))
        self.steps += [step for _, step in reversed(added)]

    def _added(self) -> Iterator[tuple[int, _Step]]:
        """The steps of what nobody expected, the last first, each with the event that it precedes."""
        for key, size in reversed(self.sizes.items()):
            if key < 0:
                yield max(size.before, size.until), (key, _FREE, 0)
                yield size.before, (key, 0, 0)

    def peaks(self, sizes: Mapping[int, int], late: frozenset[int] = frozenset()) -> Peaks:
        """The peaks with these sizes in place of the expected ones, and with these allocations freed late."""
        allocator = CachingAllocator(self.config, statistics=PeaksOnly)
        malloc, free, chosen = allocator.malloc, allocator.free, sizes.get
        blocks: dict[int, Block] = {}
        for key, asked, stream in self.steps:
            if asked >= 0:
                size = chosen(key, asked)
                if size:
                    blocks[key] = malloc(size, stream)
                    if key in late:
                        allocator.record_stream(blocks[key], _OTHER_STREAM)
            elif asked == _FREE:
                block = blocks.pop(key, None)
                if block is not None:
                    free(block)
            elif asked == _WAIT:
                allocator.synchronize()
            else:
                allocator.empty_cache()
        return Peaks(allocator.max_allocated_bytes, allocator.max_reserved_bytes)
