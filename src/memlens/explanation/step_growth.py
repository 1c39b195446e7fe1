"""What every step leaves behind: a loop whose memory grows does not show it in two steps.

>>> from memlens.model import Alloc, Mark, Site, Trace
>>> losses = [Alloc(step, 4 << 20, site=Site("train.py", 7)) for step in (1, 2, 3)]
>>> marks = [Mark("forward", step - 1, step) for step in (1, 2, 3)]
>>> grown = step_growth(Trace("predicted", losses, marks=marks))
>>> grown.bytes_per_step, grown.line
(4194304, 'train.py:7')
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from memlens.model import Alloc, Category, Site, Trace
from memlens.units import MIB, format_bytes

WORTH_SAYING_BYTES = MIB


@dataclass(frozen=True, slots=True)
class StepGrowth:
    """Each step leaves `bytes_per_step`, most of it made at `line`, which is empty where none is known.

    `more_steps` is how many steps more the card has room for; None where no card was asked for.
    """

    bytes_per_step: int
    line: str
    more_steps: int | None = None

    def text(self) -> str:
        """`grows by 24.00 MiB a step (train.py:10): out of memory after 593 more steps`."""
        at = f" ({self.line})" if self.line else ""
        end = "" if self.more_steps is None else f": out of memory after {self.more_steps:,} more steps"
        return f"grows by {format_bytes(self.bytes_per_step)} a step{at}{end}"


def step_growth(trace: Trace) -> StepGrowth | None:
    """What lines left in the first and in the second step, and is still there when the last step ends.

    A cache is made once, and the last outputs are of the last step only: neither is growth.
    """
    steps = [(mark.step, start, end) for mark, start, end in trace.phases() if mark.step > 0]
    if not steps:
        return None
    alive = {event.id for event in trace.breakdown(max(end for _, _, end in steps) - 1).live}
    first, second = (_left_by(trace, steps, number, alive) for number in (1, 2))
    if max(number for number, _, _ in steps) == 2:  # of the last step more is alive than it leaves
        second = Counter({made: min(size, first[made]) for made, size in second.items()})
    common = {made: size for made, size in second.items() if size and first[made]}
    total = sum(common.values())
    if total < WORTH_SAYING_BYTES:
        return None
    lines: Counter[str] = Counter()
    for (site, _), size in common.items():
        lines[site.where] += size
    return StepGrowth(total, lines.most_common(1)[0][0])


def _left_by(
    trace: Trace, steps: list[tuple[int, int, int]], number: int, alive: set[int]
) -> Counter[tuple[Site, Category]]:
    """Bytes that step `number` made and that are in `alive`, by who made them and as what."""
    left_bytes: Counter[tuple[Site, Category]] = Counter()
    for step, start, end in steps:
        if step == number:
            for event in trace.events[start:end]:
                if isinstance(event, Alloc) and event.id in alive:
                    left_bytes[event.site, event.category] += event.bytes
    return left_bytes
