"""Tensors that a loop keeps though nothing uses them again: last outputs, losses with their graphs.

A variable of a loop lives until the next step gives its name to something else. What forward and backward of
one step made, no operator used after it, and is there in the next forward all the same, could have gone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from memlens.model import Alloc, Category, Event, Free, Mark, Trace

# where one could write `del`: between these phases of a loop
_BETWEEN = ("after backward", "optimizer", "inputs", "forward", "evaluation", "end")
_OF_THE_STEP = (Category.ACTIVATION, Category.TEMPORARY, Category.UNKNOWN)


def stale_allocations(trace: Trace, last_use: Mapping[int, int]) -> dict[int, int]:
    """Allocations by their id, each with the event number at which it could have been freed.

    `last_use` has, by the same id, how many events there were when an operator last used it.
    """
    forwards = [mark.index for mark in trace.marks if mark.name in ("forward", "evaluation")]
    ends = sorted(mark.index for mark in trace.marks if mark.name in _BETWEEN)
    freed = {event.id: number for number, event in enumerate(trace.events) if isinstance(event, Free)}
    freed_at: dict[int, int] = {}
    for number, event in enumerate(trace.events):
        if not isinstance(event, Alloc) or event.category not in _OF_THE_STEP or not forwards:
            continue
        if number < forwards[0]:
            continue  # not of a step
        last = max(last_use.get(event.id, number), number + 1)
        following = bisect_left(ends, last)
        if following == len(ends) or ends[following] >= freed.get(event.id, len(trace.events)):
            continue
        next_forward = bisect_left(forwards, last)
        if next_forward < len(forwards) and forwards[next_forward] < freed.get(event.id, len(trace.events)):
            freed_at[event.id] = ends[following]
    return freed_at


def freed_early(trace: Trace, at: Mapping[int, int]) -> Trace:
    """`trace` with these allocations freed at these event numbers; addresses are those of before."""
    due: dict[int, list[Event]] = {}
    for number, index in at.items():
        due.setdefault(index, []).append(Free(number))
    events: list[Event] = []
    moved: list[int] = []  # old event number -> new
    for index, event in enumerate(trace.events):
        moved.append(len(events))
        events += due.pop(index, [])
        if not (isinstance(event, Free) and event.id in at):
            events.append(event)
    moved.append(len(events))
    marks = [Mark(mark.name, moved[mark.index], mark.step, mark.time_us) for mark in trace.marks]
    return Trace(
        trace.origin, events, trace.device, marks, trace.metadata, trace.assumptions, trace.processes
    )  # fmt: skip
