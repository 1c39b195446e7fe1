"""The allocator's cost per call, and that of reading and checking a snapshot of 100,000 events.

    python -m benchmarks.snapshot_speed

CPU seconds, which a busy machine does not stretch. Targets on a quiet 2-core machine: at most 3 us for a
malloc or free, 3 s and 500 MiB for the snapshot.
"""

from __future__ import annotations

import random
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from memlens.allocator import CachingAllocator, parse_config, replay, verify
from memlens.model import Alloc, Event, Frame, Free, Site, Trace
from memlens.records.snapshot_writer import dumps
from memlens.records.torch_snapshot import load_snapshot
from memlens.units import KIB, MIB

T = TypeVar("T")
SIZES = (512, 2 * KIB, 64 * KIB, MIB, 2 * MIB, 5 * MIB, 17 * MIB, 64 * MIB)


def timed(what: str, work: Callable[[], T], per: int = 0) -> T:
    """Run `work` and print what it took, in microseconds for each of `per` where that is given."""
    before = time.process_time()
    result = work()
    seconds = time.process_time() - before
    print(f"{what:58} {seconds / per * 1e6:8.2f} us" if per else f"{what:58} {seconds:8.2f} s")
    return result


def calls(count: int, alive: int) -> list[int]:
    """Sizes to allocate, and -1 - n to free the n-th living block; about `alive` are alive at a time."""
    dice, living, found = random.Random(3), 0, []
    for _ in range(count):
        if living < alive or dice.random() < 0.5:
            found.append(dice.choice(SIZES))
            living += 1
        else:
            found.append(-1 - dice.randrange(living))
            living -= 1
    return found


def play(program: list[int], settings: str) -> None:
    allocator, living = CachingAllocator(parse_config(settings)), []
    for call in program:
        if call > 0:
            living.append(allocator.malloc(call))
        else:
            allocator.free(living.pop(-1 - call))


def recording(count: int) -> bytes:
    """A snapshot of `count` events from 2,000 stacks of 31 frames."""
    library = "/x/site-packages/torch/m.py"
    sites = [
        Site(frames=(*(Frame(library, line + depth, "f") for depth in range(30)), Frame("net.py", line, "g")))
        for line in range(1, 2001)
    ]
    dice, events, living = random.Random(1), list[Event](), list[int]()
    for number in range(count // 2):
        events.append(Alloc(number, dice.choice(SIZES[:6]), site=dice.choice(sites)))
        living.append(number)
        if len(living) > 300:
            events.append(Free(living.pop(dice.randrange(len(living)))))
    return dumps(replay(Trace("measured", events)))


def main() -> None:
    program = calls(200_000, alive=400)
    for settings in ("", "expandable_segments:True", "max_split_size_mb:128"):
        timed(
            f"malloc or free, {settings or 'default settings'}",
            lambda s=settings: play(program, s),
            len(program),
        )  # type: ignore[misc]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "snapshot.pickle"
        path.write_bytes(recording(100_000))
        trace = timed(f"load_snapshot, {path.stat().st_size / MIB:.1f} MiB", lambda: load_snapshot(path))
        timed(f"verify, {len(trace.events):,} events", lambda: verify(trace))
    print(f"peak RSS {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KIB:.0f} MiB")


if __name__ == "__main__":
    main()
