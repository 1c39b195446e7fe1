"""What a script's steps leave behind: a loop whose memory grows does not show it in two steps."""

from __future__ import annotations

from collections import Counter

from memlens.model import Alloc, Assumption, Category, Free, Site, Trace
from memlens.units import MIB, format_bytes

_OF_A_STEP = (Category.ACTIVATION, Category.TEMPORARY, Category.UNKNOWN)
WORTH_SAYING = MIB


def growth(trace: Trace) -> Assumption | None:
    """An assumption if steps 1 and 2 both left tensors of the same lines that are still alive at the end.

    A cache is made once, and the last outputs are of the last step only: neither is growth.
    """
    first, second = (_left_by(trace, step) for step in (1, 2))
    common = {site: min(size, second[site]) for site, size in first.items() if second[site]}
    total = sum(common.values())
    if total < WORTH_SAYING:
        return None
    site = max(common, key=lambda site: common[site])
    at = f", most of it made at {site.where}" if site.where else ""
    return Assumption(
        f"every step leaves {format_bytes(total)} behind{at}",
        "a list of losses or outputs with their graphs does that; more steps than were run need as much more "
        "for each",
    )


def _left_by(trace: Trace, step: int) -> Counter[Site]:
    """Bytes that this step's forward and backward made and that are there in the end, by their lines."""
    alive = {event.id for event in trace.events if isinstance(event, Alloc)}
    alive -= {event.id for event in trace.events if isinstance(event, Free)}
    left_bytes: Counter[Site] = Counter()
    for mark, start, end in trace.phases():
        if mark.step != step or mark.name not in ("forward", "backward", "after backward"):
            continue
        for event in trace.events[start:end]:
            if isinstance(event, Alloc) and event.id in alive and event.category in _OF_A_STEP:
                left_bytes[event.site] += event.bytes
    return left_bytes
