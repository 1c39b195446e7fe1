"""`memlens.simulate()`: a context in which ordinary code runs on a GPU that is not there."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import pkgutil
from typing import Any

import torch.fx.experimental.symbolic_shapes  # noqa: F401  # what meta kernels load at their first call

import memlens.simulation.torch_api.tensor_methods  # noqa: F401  # registers what tensors answer
from memlens.allocator import from_environment, parse_config, text_in
from memlens.devices import Gpu, as_gpu, custom_gpu
from memlens.devices.simulated import PROVIDERS
from memlens.errors import UsageError
from memlens.patching import Patches, remove
from memlens.simulation import rules
from memlens.simulation.core import global_state
from memlens.simulation.core.phases import follow, settle
from memlens.simulation.core.session import Simulation
from memlens.simulation.dispatch import autograd_in_place, dispatcher_kernels
from memlens.simulation.dispatch.mode import DispatchMode
from memlens.simulation.torch_api import cuda_module, threads
from memlens.simulation.torch_api.device import DeviceMode
from memlens.simulation.torch_api.memory_snapshot import SimulatedCard

for _module in pkgutil.walk_packages(rules.__path__, rules.__name__ + "."):
    importlib.import_module(_module.name)

_active: list[Simulation] = []


class SimulationContext(contextlib.AbstractContextManager[Simulation], contextlib.ContextDecorator):
    """What `simulate()` gives: for a `with`, or before a function."""


def simulate(
    gpu: str | Gpu | None = None,
    *,
    memory_bytes: int | None = None,
    alloc_conf: str | None = None,
    raise_oom: bool = False,
    automatic_phases: bool = True,
) -> SimulationContext:
    """Run PyTorch code on a GPU that is not there.

    Inside, `device="cuda"` works as on a machine with that card, and `torch.cuda.memory_allocated()` and its
    kin answer from the simulation. Nothing is computed: device tensors have shapes, no values.

    Args:
        gpu: a card's name as people type it ("A100 40GB", "4090", "t4"), or a `Gpu`.
        memory_bytes: the card's memory in bytes, without or beside a name.
        alloc_conf: what PYTORCH_CUDA_ALLOC_CONF would say; by default what the environment says when the
            first tensor comes to the device, as PyTorch reads it.
        raise_oom: raise `torch.OutOfMemoryError` at the operator where the real card would; by default the
            simulation goes on, so that the peak can be known.
        automatic_phases: mark forward, backward and optimizer from what the code does.

    Yields:
        The `Simulation`: `.trace` is the record so far, `.allocator` has the figures.

    Raises:
        UsageError: an unknown card, a bad allocator setting, or a simulation inside a simulation.

    Example:
        >>> import torch, memlens
        >>> with memlens.simulate(gpu="A100 40GB"):
        ...     x = torch.ones(1024, 1024, device="cuda")
        ...     torch.cuda.memory_allocated()
        4194304
    """
    return _Simulating(gpu, memory_bytes, alloc_conf, raise_oom, automatic_phases)


class _Simulating(Patches[Simulation], SimulationContext):
    """Changes torch for as long as it lasts, and puts it back."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__()
        self.arguments = arguments

    def _recreate_cm(self) -> _Simulating:
        return _Simulating(*self.arguments)

    def begin(self) -> Simulation:
        gpu, memory_bytes, alloc_conf, raise_oom, automatic_phases = self.arguments
        if _active:
            raise UsageError(
                f"simulate({gpu!r}) was called inside a simulation of {_active[-1].gpu.name}",
                hint="end the first one before the next begins",
            )
        card = _card(gpu, memory_bytes)
        config = from_environment(os.environ) if alloc_conf is None else parse_config(alloc_conf)
        capacity = card.memory_bytes - card.context_bytes[1] if raise_oom else None
        self.sim = sim = Simulation(card, config, capacity, automatic_phases)
        sim.alloc_conf = alloc_conf
        if alloc_conf is None:  # as PyTorch: read when CUDA is first used, so that the program may set it
            sim.ledger.before_first = lambda: sim.configure(from_environment(os.environ), text_in(os.environ))
        device_mode = DeviceMode(sim)
        for undo in (
            device_mode.moved.put_back,
            sim.ledger.close,
            lambda: settle(sim.trace, sim.phases.forward_ends),
            sim.finish,
        ):
            self.afterwards(undo)
        self.afterwards(_active.clear)
        _active.append(sim)
        card_here = SimulatedCard(sim, device_mode)
        self.afterwards(lambda: remove(PROVIDERS, card_here))
        PROVIDERS.append(card_here)
        self._change_torch(sim, device_mode)
        if automatic_phases:
            sim.mark("build", 0)
        return sim

    def _change_torch(self, sim: Simulation, device_mode: DeviceMode) -> None:
        global_state.remember(self)
        dispatcher_kernels.without_compiler(self)
        dispatcher_kernels.checkpoints_compare_no_devices(self)
        autograd_in_place.unshared()  # asked once per process, before torch is changed
        self.replace_all(cuda_module.replacements(sim, device_mode))
        dispatcher_kernels.install(self, sim)
        follow(self, sim.phases)
        global_state.remember_modes(self)
        dispatch_mode = DispatchMode(sim)
        dispatch_mode.__enter__()
        device_mode.__enter__()
        self.replace_all(threads.replacements(sim, device_mode, dispatch_mode))

    def end(self) -> None:
        self.sim.phases.check()


def _card(gpu: str | Gpu | None, memory_bytes: int | None) -> Gpu:
    card = as_gpu(gpu)
    if card is None:
        if memory_bytes is None:
            raise UsageError("simulate() needs a card", hint='name one, such as simulate(gpu="A100 40GB")')
        return custom_gpu(memory_bytes)
    return dataclasses.replace(card, memory_bytes=memory_bytes) if memory_bytes is not None else card
