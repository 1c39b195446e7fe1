"""The context of a machine from one reading of it, as `memlens calibrate --shows` takes it.

What the driver and CUDA take beside the allocator's memory depends on the machine. The catalogue's range
covers many; whoever has a card can read it once. Here the row with the smallest measured memory is that
reading: what was measured less what is predicted to be reserved is the machine's context. The row itself is
not compared.
"""

from __future__ import annotations

from benchmarks.accuracy.device_rows import CARD
from benchmarks.accuracy.job import MIB, Predicted
from benchmarks.accuracy.run import Result
from memlens.devices import find_in_catalogue
from memlens.devices.reading import Reserved, of_running_program

FIGURE = "device, with one reading"
MACHINE = ("timm_a100", "networks_a100")  # tables of one machine; the first has the reading
WITHOUT_CUDNN = ("BERT_base",)  # families that have no convolution; the reading has


def add_reading(results: dict[str, list[Result]]) -> tuple[str, float] | None:
    """Add the figure FIGURE to the rows of the machine; the row that was read and its context in MiB."""
    rows = [result for result in results.get(MACHINE[0], []) if not result.left_out]
    if not rows:
        return None
    reading = min(rows, key=lambda result: result.measured_mib["device"])
    expected, low, high = (int(mib * MIB) for mib in reading.predicted["reserved"])
    shown = int(reading.measured_mib["device"] * MIB)
    card = find_in_catalogue(CARD)
    read = of_running_program(card, shown, Reserved(low, expected, high, has_cudnn=True), reading.key)
    context = read.apply(card).context
    for result in (result for table in MACHINE for result in results.get(table, [])):
        if result is not reading and not result.left_out:
            mib, low_mib, high_mib = result.predicted["reserved"]
            below, more, above = (size / MIB for size in context.of(result.family not in WITHOUT_CUDNN))
            result.predicted[FIGURE] = Predicted(mib + more, low_mib + below, high_mib + above)
            result.measured_mib[FIGURE] = result.measured_mib["device"]
    return reading.key, context.all_bytes[1] / MIB
