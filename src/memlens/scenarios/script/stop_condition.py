"""When a script has shown enough: after some optimizer steps, at the next one's first forward.

What stands between two steps in the script (zeroing gradients, a moving average, an evaluation) still runs,
so it is seen; the step after the last is not simulated.
"""

from __future__ import annotations

import contextlib
import functools
import signal
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.nn.modules import module as hooks
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader

from memlens.patching import replaced
from memlens.scenarios.script.loader_rounds import Rounds

# an optimizer that steps this many times while another has not stepped as often as asked does not wait for it
PATIENCE = 8


class Stop(BaseException):
    """Ends the script; no `except Exception` of its own holds it back."""


class Steps:
    """Counts the steps of every optimizer; backward passes where the script has no optimizer of torch's."""

    def __init__(self, sim: Any, wanted: int, progress: Callable[[str], None]) -> None:
        self.sim, self.wanted, self.progress = sim, wanted, progress
        # of each optimizer, in the order in which they were made; None: it stepped in an earlier cell only
        self.counts: list[int | None] = []
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self.precision = ""  # of most of the weights
        self.names: list[str] = []  # of the optimizers that stepped, in order
        self.rounds = Rounds(wanted, lambda: self.has_enough)
        self.stopped = False
        self.end = 0  # events up to the stop
        self._lines: dict[int, int] = {}  # of the frames that the last step was called from, by their ids
        self._step = 0  # of the simulation, when it was stopped
        self._before = self._marks_before = 0  # steps and marks of the cells that have ended

    @property
    def taken(self) -> int:
        """Whole steps so far: those of the optimizer that stepped most."""
        return self._before + (max((count or 0 for count in self.counts), default=0) or self.backwards)

    @property
    def backwards(self) -> int:
        return sum(mark.name == "backward" for mark in self.sim.trace.marks[self._marks_before :])

    @property
    def has_enough(self) -> bool:
        counts = [count for count in self.counts if count is not None]
        if not counts:
            return self.backwards >= self.wanted
        return min(counts) >= self.wanted or max(counts) >= PATIENCE * self.wanted

    @property
    def is_over(self) -> bool:
        """Whether this is the time to stop: nothing ends the loop by itself."""
        return self.has_enough and not self.rounds.will_end

    def begin_cell(self) -> None:
        """Another cell of a notebook: its steps count anew, without optimizers of the cells before."""
        self.rounds.begin_cell()
        self._before, self._marks_before = self.taken, len(self.sim.trace.marks)
        self.counts = [None if count is None or count > 0 else 0 for count in self.counts]

    def go_on(self, phase: str) -> None:
        """Something follows although this was stopped."""
        self.sim.mark(phase)
        self.stopped, self.sim.step = False, self._step

    def made(self, optimizer: Any) -> None:
        self._numbers[optimizer] = len(self.counts)
        self.counts.append(0)

    def step_begins(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if self.is_over:
            self.stop()

    def step_ends(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        if optimizer not in self._numbers:
            self.made(optimizer)
        number = self._numbers[optimizer]
        self._lines = dict(lines_of(sys._getframe(1)))
        self.counts[number] = count = (self.counts[number] or 0) + 1
        self.rounds.stepped()
        name = type(optimizer).__name__
        if name not in self.names:
            self.names.append(name)
        self.precision = self.precision or precision(self.sim)
        self.progress(f"step {count} of {self.wanted} taken")

    def forward_begins(self, module: nn.Module, args: Any) -> None:
        if self.stopped or (module.training and torch.is_grad_enabled() and self.is_over):
            self.stop()

    def zeroing(self) -> None:
        """Gradients are about to be dropped. Where that begins the next round of the loop, this one is over.

        A loop that zeroes before it runs forward leaves its last gradients to what follows it.
        """
        if not self.is_over:
            return
        for frame, line in lines_of(sys._getframe(1)):
            if frame in self._lines:
                if line < self._lines[frame]:
                    self.stop()
                return

    def stop(self) -> None:
        """What happens while the script unwinds is not part of its run."""
        if not self.stopped:
            self.stopped = True
            marks, here = self.sim.trace.marks, len(self.sim.events)
            if marks and marks[-1].index == here and marks[-1].name == "forward":
                del marks[-1]  # of the step that is not taken
            self._step = self.sim.step
            self.sim.mark("end", step=0)
            self.end = len(self.sim.events)
        if threading.current_thread() is not threading.main_thread():  # which may wait for this one
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
        raise Stop


def lines_of(frame: FrameType | None) -> Iterator[tuple[int, int]]:
    """Each frame's id and line, from the innermost outwards."""
    while frame is not None:
        yield id(frame), frame.f_lineno
        frame = frame.f_back


@contextlib.contextmanager
def counting(steps: Steps, *, by_cell: bool = False) -> Iterator[None]:
    """Watch optimizers and modules, and take every hook away again.

    `by_cell`: something follows a loop that is stopped, so it is to leave what it would leave at its end.
    """
    init, table = torch.optim.Optimizer.__init__, dict[Any, Any]()

    def noted(self: Any, *args: Any, **kwargs: Any) -> None:
        init(self, *args, **kwargs)
        steps.made(self)

    handles = [
        hooks.register_module_forward_pre_hook(steps.forward_begins),
        optimizers.register_optimizer_step_pre_hook(steps.step_begins),
        optimizers.register_optimizer_step_post_hook(steps.step_ends),
    ]
    try:
        table["torch.optim.Optimizer.__init__"] = noted
        if by_cell:
            table[DataLoader, "__iter__"] = steps.rounds.over(DataLoader.__iter__)
            for owner in (torch.optim.Optimizer, nn.Module):
                table[owner, "zero_grad"] = _after(steps.zeroing, owner.zero_grad)
        with replaced(table):
            yield
    finally:
        for handle in handles:
            handle.remove()


def _after(first: Callable[[], None], function: Any) -> Any:
    @functools.wraps(function)
    def both(*args: Any, **kwargs: Any) -> Any:
        first()
        return function(*args, **kwargs)

    return both


def precision(sim: Any) -> str:
    """The dtype that most bytes of parameters have: fp32, bf16, ...; empty without parameters."""
    sizes: Counter[torch.dtype] = Counter()
    for root in sim.attribution.roots():
        for parameter in root.parameters():
            sizes[parameter.dtype] += parameter.numel() * parameter.element_size()
    if not sizes:
        return ""
    name = str(sizes.most_common(1)[0][0]).removeprefix("torch.")
    return {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}.get(name, name)
