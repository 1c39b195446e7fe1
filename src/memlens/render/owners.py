"""Who held the memory at the peak, as a short table: a line of source a row."""

from __future__ import annotations

from memlens.explanation.held import held_by, largest_first
from memlens.model import Trace
from memlens.units import format_bytes, format_count

LINES_SHOWN = 10


def owners(trace: Trace, limit: int = LINES_SHOWN) -> str:
    """The lines whose allocations were alive at the peak, largest first; the others are one row."""
    peak = trace.breakdown()
    by_line = largest_first(held_by(peak, lambda alloc: alloc.site.where))
    rows = [f"held at the peak of {format_bytes(peak.allocated_bytes)}, by line:"]
    for where, (size, count) in by_line[:limit]:
        blocks = f"{format_count(count)} block{'s' if count > 1 else ''}"
        rows.append(f"  {format_bytes(size):>12}  {blocks:>16}  {where or 'no Python line'}")
    others = [use.bytes for _, use in by_line[limit:]]
    if others:
        rows.append(f"  {format_bytes(sum(others)):>12}  {'':>16}  {len(others)} more lines")
    return "\n".join(rows)
