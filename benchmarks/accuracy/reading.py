"""The context of a machine from one reading of it.

What the driver and CUDA take beside the allocator's memory depends on the machine. The catalogue's range
covers many; whoever has a card can read it once. Here the row with the smallest measured memory is that
reading: what was measured less what is predicted to be reserved is the machine's context. The row itself is
not compared.
"""

from __future__ import annotations

from benchmarks.accuracy.job import Predicted
from benchmarks.accuracy.run import Result

FIGURE = "device, with one reading"
MACHINE = ("timm_a100", "networks_a100")  # tables of one machine; the first has the reading


def add_reading(results: dict[str, list[Result]]) -> tuple[str, float] | None:
    """Add the figure FIGURE to the rows of the machine; the row that was read and its context in MiB."""
    rows = [result for result in results.get(MACHINE[0], []) if not result.left_out]
    if not rows:
        return None
    reading = min(rows, key=lambda result: result.measured_mib["device"])
    context = reading.measured_mib["device"] - reading.predicted["reserved"].mib
    for result in (result for table in MACHINE for result in results.get(table, [])):
        if result is not reading and not result.left_out:
            reserved = result.predicted["reserved"]
            result.predicted[FIGURE] = Predicted(*(mib + context for mib in reserved))
            result.measured_mib[FIGURE] = result.measured_mib["device"]
    return reading.key, context
