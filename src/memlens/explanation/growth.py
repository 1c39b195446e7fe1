"""What grows from step to step: memory each time that a recording comes round to the same place.

>>> from memlens.model import Alloc, Mark, Trace
>>> trace = Trace("measured", [Alloc(n, 512) for n in range(4)], marks=[Mark("step", n, n) for n in range(4)])
>>> growth(trace).allocated_bytes, growth(trace).bytes_per_step
((0, 512, 1024, 1536), 512)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from memlens.model.breakdown import Breakdown
from memlens.model.events import Alloc
from memlens.model.site import Site, is_cell
from memlens.model.trace import Trace

LEAST = 3  # times that a place must come before growth is reported
SPAN = 0.25  # of a recording that a loop must last, to be the one that its program is about
MODULE_CALL = "_call_impl"  # through which torch.nn.Module runs every forward
LINES = 5  # that grew most


@dataclass(frozen=True, slots=True)
class Growth:
    """`allocated_bytes` each time that `mark` came; `lines` are (name, bytes a step) of what grew most.

    `inferred`: nothing in the recording names its steps; `mark` is the line to which its outermost loop
    came back. The first time is left out of the figures for a step: it often comes before optimizer state and
    workspaces exist.
    """

    mark: str
    allocated_bytes: tuple[int, ...]
    lines: tuple[tuple[str, int], ...] = ()
    inferred: bool = False

    @property
    def bytes_per_step(self) -> int:
        """What each step added, from the second on."""
        return round((self.allocated_bytes[-1] - self.allocated_bytes[1]) / (len(self.allocated_bytes) - 2))

    def to_dict(self) -> dict[str, Any]:
        return {
            "mark": self.mark,
            "inferred": self.inferred,
            "allocated_bytes": list(self.allocated_bytes),
            "bytes_per_step": self.bytes_per_step,
            "lines": [{"line": name, "bytes_per_step": size} for name, size in self.lines],
        }


def growth(trace: Trace) -> Growth | None:
    """By the mark that comes most often, else by the loop that the stacks show; None where neither is."""
    marks: dict[str, list[int]] = {}
    for mark in trace.marks:
        marks.setdefault(mark.name, []).append(mark.index)
    name, starts = max(marks.items(), key=lambda item: len(item[1]), default=("", []))
    inferred = len(starts) < LEAST
    if inferred:
        name, starts = rounds(trace)
    if len(starts) < LEAST:
        return None
    allocated = trace.timeline().allocated
    sizes = tuple(allocated[start - 1] if start else trace.baseline_allocated_bytes for start in starts)
    return Growth(name, sizes, _lines(trace, starts), inferred)


def _lines(trace: Trace, starts: list[int]) -> tuple[tuple[str, int], ...]:
    """What was held by each line at the last start, less what it held at the second."""
    before, after = (_held_bytes(trace.breakdown(start - 1)) for start in (starts[1], starts[-1]))
    grown = {name: (size - before.get(name, 0)) / (len(starts) - 2) for name, size in after.items()}
    rows = sorted(((name, round(size)) for name, size in grown.items()), key=lambda row: -row[1])
    return tuple(row for row in rows[:LINES] if row[1] > 0)


def _held_bytes(held: Breakdown) -> dict[str, int]:
    return held.by(lambda alloc: alloc.site.where or alloc.site.operator or "no stack recorded")


Function: TypeAlias = tuple[str, str]  # file and name


@dataclass(slots=True)
class _Loop:
    """What is known of one function: the line it was at, and each time that it came back to a lower one."""

    depth: int
    line: int
    returns: list[tuple[int, int]]  # (event, line)
    busy: set[int] = field(default_factory=set)  # numbers of the returns after which a module ran below it
    inside: bool = False  # it was called by a module's forward


def rounds(trace: Trace) -> tuple[str, list[int]]:
    """The line to which the outermost loop of a recording came back, and the events at which it did.

    A function's line only falls when a loop in it begins anew. Such a loop is one of steps when modules run
    in each of its rounds and it lies in no module itself: loops over layers or over parameters are none. Of
    several the outermost is taken, if it lasts for a good part of the recording.
    """
    loops: dict[Function, _Loop] = {}
    stacks: dict[int, tuple[list[tuple[Function, int]], int]] = {}
    previous: Site | None = None
    for number, event in enumerate(trace.events):
        if not isinstance(event, Alloc) or event.site is previous or not event.site.frames:
            continue
        previous = event.site
        stack, called = stacks.get(id(previous)) or stacks.setdefault(id(previous), _functions(previous))
        for depth, (function, line) in enumerate(stack):
            loop = loops.get(function)
            if loop is None:
                loop = loops[function] = _Loop(depth, line, [(number, line)])
            elif line < loop.line:
                loop.returns.append((number, line))
            loop.line = line
            loop.inside = loop.inside or depth >= called
            if depth < called < len(stack):
                loop.busy.add(len(loop.returns) - 1)
    candidates = [
        (loop.depth, *_regular_returns(function, loop)) for function, loop in loops.items() if not loop.inside
    ]
    least = SPAN * len(trace.events)
    long = [each for each in candidates if len(each[2]) >= LEAST and each[2][-1] - each[2][0] >= least]
    _, name, starts = min(long, key=lambda each: each[0], default=(0, "", []))
    return name, starts


def _functions(site: Site) -> tuple[list[tuple[Function, int]], int]:
    """Each Python function of a stack with its line, outermost first, of recursion the outermost call.

    And the place of the first that a module called, the number of functions where none was.
    """
    lines: dict[Function, int] = {}
    called = None
    for frame in reversed(site.frames):
        if frame.file.endswith(".py") or frame.file.startswith("<") or is_cell(frame.file):
            if called is None and frame.function == MODULE_CALL:
                called = len(lines)
            lines.setdefault((frame.file, frame.function), frame.line)
    return list(lines.items()), len(lines) if called is None else called


def _regular_returns(function: Function, loop: _Loop) -> tuple[str, list[int]]:
    """The line that a loop came back to most often, and when; only rounds in which modules ran."""
    busy = [loop.returns[number] for number in sorted(loop.busy)]
    lines = [line for _, line in busy]
    line = max(set(lines), key=lambda each: (lines.count(each), -each), default=0)
    return f"{function[0]}:{line} in {function[1]}", [number for number, at in busy if at == line]
