"""User code that autograd calls: hooks, custom functions and recomputation see the simulated device too.

torch switches function modes off while its own Python functions and C++ kernels run. The engine, and the
packing and unpacking of saved tensors, call back into user code from there: the mode is put back for those.
"""

from __future__ import annotations

import functools
import weakref
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import _get_current_function_mode_stack

if TYPE_CHECKING:
    from collections.abc import Callable

    from memlens.simulation.torch_api.device import DeviceMode


class _On:
    """The mode is active inside, whatever C++ has switched off around it."""

    __slots__ = ("enabled", "mode", "pushed")

    def __init__(self, mode: DeviceMode) -> None:
        self.mode = mode

    def __enter__(self) -> None:
        self.enabled = torch._C._EnableTorchFunction()
        self.enabled.__enter__()
        # another thread has a mode of its own
        self.pushed = not any(isinstance(m, type(self.mode)) for m in _get_current_function_mode_stack())
        if self.pushed:
            self.mode.__enter__()

    def __exit__(self, *exc: Any) -> None:
        if self.pushed:
            self.mode.__exit__(*exc)
        self.enabled.__exit__(*exc)


def replacements(mode: DeviceMode) -> dict[str, Any]:
    """The engine's entry, and the hooks on saved tensors, with the mode on inside."""
    engine = torch.autograd.graph._engine_run_backward
    init = torch.autograd.graph.saved_tensors_hooks.__init__
    depth = 0

    def run(*args: Any, **kwargs: Any) -> Any:
        nonlocal depth
        outermost = depth == 0 and bool(kwargs.get("accumulate_grad"))
        if outermost:
            mode.sim.phases.backward_begins()
        depth += 1
        try:
            with _On(mode), mode.sim.create_on(None):
                return engine(*args, **kwargs)
        finally:
            depth -= 1
            if outermost:
                mode.sim.phases.backward_ends()

    def hooks(self: Any, pack_hook: Any, unpack_hook: Any) -> None:
        init(self, _inside(mode, pack_hook), _inside(mode, unpack_hook))

    return {
        "torch.autograd.graph._engine_run_backward": run,
        "torch.autograd._engine_run_backward": run,
        "torch.autograd.graph.saved_tensors_hooks.__init__": hooks,
    }


def _inside(mode: DeviceMode, hook: Callable[[Any], Any]) -> Callable[[Any], Any]:
    find = weakref.ref(mode)  # torch (2.13) never lets go of a pack hook it has called

    @functools.wraps(hook)
    def call(value: Any) -> Any:
        living_mode = find()
        if living_mode is None:  # the simulation has ended
            return hook(value)
        with _On(living_mode):
            return hook(value)

    return call
