"""Where in the training step the code is, seen from outside: forward, backward, optimizer.

Global module hooks tell when the outermost module runs and which module each allocation belongs to; global
optimizer hooks tell when a step begins and ends. Scenarios that own the loop mark phases themselves.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.nn.modules import module as hooks
from torch.optim import optimizer as optimizers

from memlens.model import Alloc, Category, Free
from memlens.simulation.core import lbfgs
from memlens.simulation.core.uncounted import check_module, check_optimizer

if TYPE_CHECKING:
    from memlens.model import Assumption, Event, Site, Trace
    from memlens.patching import Patches
    from memlens.simulation.core.attribution import Attribution
    from memlens.simulation.core.ledger import Ledger


class Loop(Protocol):
    """What a simulation lets the loop's hooks do."""

    attribution: Attribution
    ledger: Ledger
    events: list[Event]
    phase: str
    step: int

    @property
    def elsewhere(self) -> bool: ...
    def site(self, operator: str) -> Site: ...
    def assume(self, assumption: Assumption) -> None: ...
    def mark(self, phase: str, step: int | None = None) -> None: ...
    def label(self, tensors: Any, category: Category, owner: Tensor | None = None) -> None: ...
    def label_module(self, module: nn.Module) -> None: ...
    def label_gradients(self, parameters: Iterable[Tensor]) -> None: ...
    def label_state(self, optimizer: torch.optim.Optimizer) -> None: ...


class Phases:
    """Follows the loop: each method is the body of one hook."""

    def __init__(self, simulation: Loop, automatic: bool) -> None:
        self.sim = simulation
        self.automatic = automatic
        self.optimizers: WeakSet[torch.optim.Optimizer] = WeakSet()  # those that made a step
        self.forward_ends: list[int] = []  # events at which an outermost forward ended
        self.history_bytes = 0  # the most that L-BFGS held
        self._stepped = True  # the optimizer ran since the last forward: the next forward begins a step

    def module_begins(self, module: nn.Module, args: Any) -> None:
        with torch._C.DisableTorchFunction():
            outermost = self.sim.attribution.enter(module)
            if self.sim.elsewhere and not torch.is_grad_enabled():
                return  # something beside the loop, such as a thread that prepares batches
            if not outermost or self.sim.phase in ("backward", "optimizer"):
                return
            if self.automatic and self.sim.phase != "forward":
                self.sim.mark("forward", self.sim.step + self._stepped)
                self._stepped = False
            self.sim.label_module(module)

    def module_ends(self, module: nn.Module, args: Any, output: Any) -> None:
        self.sim.attribution.leave()
        if not self.sim.attribution.modules:
            self.forward_ends.append(len(self.sim.events))

    def backward_begins(self) -> None:
        if self.automatic:
            self.sim.mark("backward")

    def backward_ends(self) -> None:
        for root in self.sim.attribution.roots():
            self.sim.label_gradients(root.parameters())
        if self.automatic:
            self.sim.mark("after backward")

    def step_begins(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        check_optimizer(self.sim.ledger, optimizer, self.sim.site("step").where)
        self.optimizers.add(optimizer)
        for group in optimizer.param_groups:
            self.sim.label(group["params"], Category.PARAMETER)
            self.sim.label_gradients(group["params"])
        if self.automatic:
            self.sim.mark("optimizer")

    def check(self) -> None:
        """At the end: UncountedTensor if a module or optimizer holds something that is not counted."""
        if self.history_bytes:
            self.sim.assume(lbfgs.assumption(self.history_bytes))
        for root in self.sim.attribution.roots():
            check_module(self.sim.ledger, root)
        for optimizer in self.optimizers:
            check_optimizer(self.sim.ledger, optimizer)

    def step_ends(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self.sim.label_state(optimizer)
        self.history_bytes = max(self.history_bytes, lbfgs.history_bytes(optimizer))
        self._stepped = True
        if self.automatic:
            self.sim.mark("inputs")


def follow(patches: Patches[Any], phases: Phases) -> None:
    """Install the hooks, for as long as the patches last."""
    ours = (phases.module_begins, phases.module_ends, phases.step_begins, phases.step_ends)
    patches.afterwards(lambda: _remove(ours))
    hooks.register_module_forward_pre_hook(phases.module_begins)
    hooks.register_module_forward_hook(phases.module_ends, always_call=True)
    optimizers.register_optimizer_step_pre_hook(phases.step_begins)
    optimizers.register_optimizer_step_post_hook(phases.step_ends)


def _remove(ours: tuple[Any, ...]) -> None:
    """By the hooks themselves: an interrupt may come between a hook and its handle."""
    tables: tuple[dict[int, Any], ...] = (
        hooks._global_forward_pre_hooks,
        hooks._global_forward_hooks,
        optimizers._global_optimizer_pre_hooks,
        optimizers._global_optimizer_post_hooks,
    )
    for table in tables:
        for key in [key for key, hook in table.items() if hook in ours]:
            hooks._global_forward_hooks_always_called.pop(key, None)
            del table[key]


def settle(trace: Trace, forward_ends: list[int]) -> None:
    """Name for good what was only provisional.

    What forward made and freed before backward was temporary. Where no backward follows, what outlives its
    forward is kept for one that never comes (a forgotten `no_grad`): still an activation. `forward_ends` are
    the events at which the outermost modules' forwards ended.
    """
    freed = {event.id: number for number, event in enumerate(trace.events) if isinstance(event, Free)}
    backwards = [mark.index for mark in trace.marks if mark.name == "backward"]
    position = 0
    for number, event in enumerate(trace.events):
        if not isinstance(event, Alloc) or event.category is not Category.ACTIVATION:
            continue
        while position < len(backwards) and backwards[position] <= number:
            position += 1
        if position < len(backwards):
            needed = backwards[position]
        else:
            later = bisect_left(forward_ends, number)
            needed = forward_ends[later] if later < len(forward_ends) else len(trace.events)
        if freed.get(event.id, len(trace.events)) < needed:
            event.category = Category.TEMPORARY
