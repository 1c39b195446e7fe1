"""What forked workers copied, told from what is new and from what was given back."""

from __future__ import annotations

import pytest

from memlens.explanation.copy_on_write import find_copied
from memlens.explanation.usage import usage
from memlens.model import Process, Sample, Trace

MIB = 1 << 20
FIRST = {1: (400, 130), 2: (400, 130), 3: (400, 130)}  # pid -> RSS and PSS: 390 MiB shared by three


def family(last: dict[int, tuple[int, int]], name: str = "train.py") -> Trace:
    """A parent and two children, read twice."""
    samples = [
        Sample(time, pid, rss * MIB, pss * MIB)
        for time, readings in ((0, FIRST), (10, last))
        for pid, (rss, pss) in readings.items()
    ]
    processes = [Process(1, "train.py"), Process(2, name, parent=1), Process(3, name, parent=1)]
    return Trace("measured", samples, processes=processes)


def test_pages_that_are_shared_no_more() -> None:
    """Each holds 350 of its 400 MiB alone at the end, and grew by nothing: 660 MiB were copied."""
    found = find_copied(family({1: (400, 350), 2: (400, 350), 3: (400, 350)}))
    assert found is not None
    assert (found.parent, found.workers, found.bytes) == ("train.py", 2, 660 * MIB)
    assert usage(family({1: (400, 350), 2: (400, 350), 3: (400, 350)})).to_dict()["copied_by_workers"] == {
        "parent": "train.py", "workers": 2, "bytes": 660 * MIB,
    }  # fmt: skip


@pytest.mark.parametrize(("last", "why"), [
    ({1: (400, 130), 2: (700, 430), 3: (700, 430)}, "new memory is in RSS as in PSS"),
    ({1: (10, 10), 2: (400, 195), 3: (400, 195)}, "the parent gave its pages back: nothing more is held"),
    ({1: (400, 135), 2: (400, 135), 3: (400, 133)}, "13 MiB are what interpreters copy of themselves"),
])  # fmt: skip
def test_what_is_no_copy(last: dict[int, tuple[int, int]], why: str) -> None:
    """New memory, memory given back, and a little that always is."""
    assert find_copied(family(last)) is None, why


def test_other_programs_share_nothing() -> None:
    """A child that executed a program of its own has a name of its own."""
    assert find_copied(family({1: (400, 350), 2: (400, 350), 3: (400, 350)}, name="sh")) is None


def test_without_shares_nothing_is_said() -> None:
    """RSS alone does not tell shared pages from own ones."""
    trace = family({})
    for event in trace.events:
        if isinstance(event, Sample):
            event.pss_bytes = None
    assert find_copied(trace) is None
