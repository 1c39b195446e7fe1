"""In the process of a script: what it consists of, and the changes that are tried on it.

A model is known here as what the script calls outermost, with gradients, and that has weights to train. It is
changed when it is called first; what a change puts around it lasts until backward begins, as people write it.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils import checkpoint
from torch.utils.data import DataLoader

from memlens.advice.model_observation import ModelObservation
from memlens.advice.unused_tensors import stale_allocations
from memlens.patching import Patches
from memlens.simulation.core.tensors_in import tensors_in

Edit = Callable[[nn.Module], object]
Around = Callable[[], AbstractContextManager[Any]]


class ScriptObserver(Patches[None]):
    """Made with the simulation and what to change: (edit, argument) pairs of `script_edits`."""

    def __init__(self, sim: Any, changes: list[tuple[Callable[[ScriptObserver, Any], None], Any]]) -> None:
        super().__init__()
        self.sim = sim
        self.edits: list[Edit] = []
        self.arounds: list[Around] = []
        self.maps: list[Callable[[Tensor], Tensor]] = []  # of what the model is called with
        self.optimizers: list[weakref.ref[Any]] = []
        self.made: list[Callable[[Any], None]] = []  # what happens to a new optimizer
        self.stepped: list[Callable[[Any], None]] = []  # what happens after a step of one
        self.models: dict[nn.Module, ModelObservation] = {}
        self.noted: dict[str, Any] = {
            "autocast": False, "checkpoints": False, "held_gradients": 0, "loaders": [], "optimizers": [],
        }  # fmt: skip
        self.last_use: dict[int, int] = {}  # allocation -> events there were when an operator last used it
        self._inside = threading.local()
        self._open = contextlib.ExitStack()
        self._entered = self._fresh = False
        self._changes = changes

    def begin(self) -> None:
        for edit, argument in self._changes:
            edit(self, argument)
        self._follow()
        self.afterwards(self._open.close)
        self.sim.watch = self._operator
        self.afterwards(register_optimizer_step_post_hook(self._after_step).remove)

    def _follow(self) -> None:
        """Put ourselves where models are called, optimizers made, and backward begins."""
        call, init = nn.Module.__call__, torch.optim.Optimizer.__init__
        autocast, saving = torch.amp.autocast_mode.autocast.__enter__, checkpoint._checkpoint_hook.__init__
        loader = DataLoader.__init__
        reentrant = checkpoint.CheckpointFunction.forward
        backward = self.sim.phases.backward_begins
        ours = self

        def called(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if getattr(ours._inside, "yes", False) or torch._C._current_autograd_node() is not None:
                return call(self, *args, **kwargs)
            ours._inside.yes = True
            try:
                return ours._outermost(functools.partial(call, self), self, args, kwargs)
            finally:
                ours._inside.yes = False

        def made(self: Any, *args: Any, **kwargs: Any) -> None:
            init(self, *args, **kwargs)
            ours.optimizers.append(weakref.ref(self))
            for action in ours.made:
                action(self)

        def loads(self: Any, *args: Any, **kwargs: Any) -> None:
            loader(self, *args, **kwargs)
            if isinstance(self.batch_size, int) and self.batch_size not in ours.noted["loaders"]:
                ours.noted["loaders"].append(self.batch_size)

        def entered(self: Any) -> Any:
            ours.noted["autocast"] |= self.device == "cuda" and self._enabled and not ours._entered
            return autocast(self)

        def saves(self: Any, *args: Any, **kwargs: Any) -> None:
            ours.noted["checkpoints"] = True
            saving(self, *args, **kwargs)

        def recomputes(*args: Any, **kwargs: Any) -> Any:
            ours.noted["checkpoints"] = True
            return reentrant(*args, **kwargs)

        def begins() -> None:
            ours._leave()
            ours._fresh = False
            backward()

        self.replace((nn.Module, "__call__"), called)
        self.replace((torch.optim.Optimizer, "__init__"), made)
        self.replace((DataLoader, "__init__"), loads)
        self.replace((torch.amp.autocast_mode.autocast, "__enter__"), entered)
        self.replace((checkpoint._checkpoint_hook, "__init__"), saves)
        self.replace((checkpoint.CheckpointFunction, "forward"), staticmethod(recomputes))
        self.sim.phases.backward_begins = begins

    def _outermost(
        self, call: Callable[..., Any], module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if not torch.is_grad_enabled():
            with contextlib.ExitStack() as stack:
                for around in self.arounds:
                    stack.enter_context(around())
                return call(*args, **kwargs)
        if module.training and any(p.requires_grad for p in module.parameters()):
            self._meet(module, args, kwargs)
            args = tuple(self._mapped(value) for value in args)
            kwargs = {name: self._mapped(value) for name, value in kwargs.items()}
        self._enter()
        return call(*args, **kwargs)

    def _mapped(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            for change in self.maps:
                value = change(value)
        return value

    def _meet(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._fresh:
            self._fresh = False
            held = sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)
            self.noted["held_gradients"] = max(self.noted["held_gradients"], held)
        if model in self.models:
            return
        rows = [tensor.shape[0] for tensor in tensors_in([*args, *kwargs.values()]) if tensor.dim()]
        self.models[model] = ModelObservation(self.sim, model, rows[0] if rows else None)
        for edit in self.edits:
            edit(model)

    def _enter(self) -> None:
        if not self._entered and self.arounds:
            self._entered = True
            for around in self.arounds:
                self._open.enter_context(around())

    def _leave(self) -> None:
        if self._entered:
            self._open.close()
            self._entered = False

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._fresh = True
        name, module = type(optimizer).__name__, type(optimizer).__module__
        kind = {"name": name, "torch": module.startswith("torch.optim")}
        kind |= {
            key: optimizer.defaults.get(key) for key in ("fused", "foreach") if key in optimizer.defaults
        }
        if kind not in self.noted["optimizers"]:
            self.noted["optimizers"].append(kind)
        for action in self.stepped:
            action(optimizer)

    def _operator(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        now = len(self.sim.events)
        for tensor in tensors_in([*args, *kwargs.values()]):
            entry = self.sim.ledger.of(tensor) if tensor.is_meta else None
            if entry is not None and entry.alloc is not None:
                self.last_use[entry.alloc.id] = now
        for seen in self.models.values():
            seen.operator(func, args, kwargs, out)

    def seen(self) -> dict[str, Any]:
        """All that was noted, ready for json."""
        models = [seen.facts() for seen in self.models.values()]
        stale = stale_allocations(self.sim.trace, self.last_use)
        return {**self.noted, "models": models, "stale": stale}
