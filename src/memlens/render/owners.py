"""Who held the memory at the peak, as a short table: a line of source a row."""

from __future__ import annotations

from collections import Counter

from memlens.model import Trace
from memlens.units import format_bytes, format_count

LINES_SHOWN = 10


def owners(trace: Trace, limit: int = LINES_SHOWN) -> str:
    """The lines whose allocations were alive at the peak, largest first; the rest is one row: sums close."""
    peak = trace.breakdown()
    by_line = peak.by_line()
    counts = Counter(alloc.site.where for alloc in peak.live)
    rows = [f"held at the peak of {format_bytes(peak.allocated_bytes)}, by line:"]
    for where, size in list(by_line.items())[:limit]:
        blocks = f"{format_count(counts[where])} block{'s' if counts[where] > 1 else ''}"
        rows.append(f"  {format_bytes(size):>12}  {blocks:>16}  {where or 'no Python line'}")
    rest = list(by_line.values())[limit:]
    if rest:
        rows.append(f"  {format_bytes(sum(rest)):>12}  {'':>16}  {len(rest)} more lines")
    return "\n".join(rows)
