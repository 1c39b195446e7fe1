"""What grows from step to step, in recordings that name their steps and in those that do not."""

from __future__ import annotations

import pytest

from memlens.explanation.growth import growth
from memlens.model import Alloc, Event, Frame, Free, Mark, Site, Trace

KIB = 1 << 10
CALL = Frame("/x/torch/nn/modules/module.py", 1776, "_call_impl")
LAYERS = (7, 9, 8)  # the lines of the model's forward that call its layers: a loop over them comes back, too


def stack(*frames: Frame) -> Site:
    """A site from frames, innermost first."""
    return Site(frames[0].file, frames[0].line, frames[0].function, frames=frames)


def main(line: int) -> Frame:
    return Frame("train.py", line, "main")


class Recording:
    """A training of some steps: forward in three layers, a loop over parameters, and what each step keeps."""

    def __init__(self, steps: int, kept_bytes: int = 0, modules: bool = True) -> None:
        self.events: list[Event] = []
        self.starts: list[int] = []
        called = (CALL,) if modules else ()
        for _ in range(steps):
            self.starts.append(len(self.events))
            made = [
                self.made(8 * KIB, *called, Frame("net.py", line, "forward"), *called, main(20))
                for line in LAYERS
            ]
            if kept_bytes:
                self.made(kept_bytes, main(22))
            made += [self.made(KIB, Frame("opt.py", line, "step"), main(25)) for line in 3 * (70, 72)]
            self.events += [Free(number) for number in made]

    def made(self, size: int, *frames: Frame) -> int:
        self.events.append(Alloc(len(self.events), size, site=stack(*frames)))
        return len(self.events) - 1

    def trace(self, marks: bool = False) -> Trace:
        named = [Mark("step", start, number) for number, start in enumerate(self.starts)] if marks else []
        return Trace("imported", self.events, marks=named)


def test_a_loop_of_steps_is_found_without_marks() -> None:
    """Five rounds of line 20, each leaving 4 KiB of line 22: that line grew, by 4 KiB a step."""
    recording = Recording(5, kept_bytes=4 * KIB)
    found = growth(recording.trace())
    assert found is not None
    assert (found.mark, found.inferred) == ("train.py:20 in main", True)
    assert found.allocated_bytes == (0, 4 * KIB, 8 * KIB, 12 * KIB, 16 * KIB)
    assert found.bytes_per_step == 4 * KIB
    assert found.lines == (("train.py:22", 4 * KIB),)


def test_marks_come_before_what_is_inferred() -> None:
    """A recording that names its steps is believed: the same sizes, under the mark's name."""
    recording = Recording(5, kept_bytes=4 * KIB)
    found = growth(recording.trace(marks=True))
    assert found is not None
    assert (found.mark, found.inferred) == ("step", False)
    assert found.allocated_bytes == (0, 4 * KIB, 8 * KIB, 12 * KIB, 16 * KIB)


def test_a_training_that_keeps_nothing_does_not_grow() -> None:
    """Four rounds that end where they began: 0 bytes a step, and no line is blamed."""
    found = growth(Recording(4).trace())
    assert found is not None
    assert (found.bytes_per_step, found.lines) == (0, ())


@pytest.mark.parametrize(("steps", "modules"), [(1, True), (2, True), (5, False)])
def test_other_loops_are_no_steps(steps: int, modules: bool) -> None:
    """Layers and parameters are looped over in a single step; two rounds, or no module, say nothing."""
    assert growth(Recording(steps, modules=modules).trace()) is None


def test_the_outermost_loop_is_the_step() -> None:
    """Two forward passes a step, in a function of their own: the loop around it is the one of steps."""
    recording = Recording(0)
    for _ in range(4):
        for line in (40, 41, 40, 41):
            inner = Frame("train.py", line, "accumulate")
            recording.made(KIB, CALL, Frame("net.py", 7, "forward"), CALL, inner, main(20))
        recording.made(KIB, main(25))
    found = growth(recording.trace())
    assert found is not None
    assert (found.mark, found.bytes_per_step) == ("train.py:20 in main", 5 * KIB)
