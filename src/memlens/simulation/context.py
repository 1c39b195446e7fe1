"""`memlens.simulate()`: a context in which ordinary code runs on a GPU that is not there."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import os
import pkgutil
from collections.abc import Iterator

import torch.fx.experimental.symbolic_shapes  # noqa: F401  # what meta kernels load at their first call

import memlens.simulation.torch_api.tensor_methods  # noqa: F401  # registers what tensors answer
from memlens.allocator import from_environment, parse_config, text_in
from memlens.devices import Gpu, as_gpu, custom_gpu
from memlens.errors import UsageError
from memlens.simulation import rules
from memlens.simulation.core.global_state import undisturbed
from memlens.simulation.core.phases import follow, settle
from memlens.simulation.core.session import Simulation
from memlens.simulation.dispatch import autograd_in_place, dispatcher_kernels
from memlens.simulation.dispatch.mode import DispatchMode
from memlens.simulation.torch_api import cuda_module, threads
from memlens.simulation.torch_api.device import DeviceMode

for _module in pkgutil.walk_packages(rules.__path__, rules.__name__ + "."):
    importlib.import_module(_module.name)

_active: list[Simulation] = []


@contextlib.contextmanager
def simulate(
    gpu: str | Gpu | None = None,
    *,
    memory_bytes: int | None = None,
    alloc_conf: str | None = None,
    raise_oom: bool = False,
    automatic_phases: bool = True,
) -> Iterator[Simulation]:
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
    if _active:
        raise UsageError(
            f"simulate({gpu!r}) was called inside a simulation of {_active[-1].gpu.name}",
            hint="end the first one before the next begins",
        )
    card = _card(gpu, memory_bytes)
    config = from_environment(os.environ) if alloc_conf is None else parse_config(alloc_conf)
    capacity = card.memory_bytes - card.context_bytes[1] if raise_oom else None
    sim = Simulation(card, config, capacity, automatic_phases)
    sim.alloc_conf = alloc_conf
    if alloc_conf is None:  # as PyTorch: read when CUDA is first used, so that the program may set it
        sim.ledger.before_first = lambda: sim.configure(from_environment(os.environ), text_in(os.environ))
    device_mode = DeviceMode(sim)
    _active.append(sim)
    try:
        with contextlib.ExitStack() as stack:
            stack.enter_context(undisturbed())
            stack.enter_context(dispatcher_kernels.without_compiler())
            stack.enter_context(dispatcher_kernels.checkpoints_compare_no_devices())
            autograd_in_place.unshared()  # asked once per process, before torch is changed
            stack.enter_context(cuda_module.installed(cuda_module.replacements(sim, device_mode)))
            stack.enter_context(dispatcher_kernels.installed(sim))
            stack.enter_context(follow(sim.phases))
            dispatch_mode = stack.enter_context(DispatchMode(sim))
            stack.enter_context(device_mode)
            stack.enter_context(threads.joined(sim, device_mode, dispatch_mode))
            if automatic_phases:
                sim.mark("build", 0)
            yield sim
            sim.phases.check()
    finally:
        _active.clear()
        for finish in sim.at_end:
            finish()
        settle(sim.trace)
        sim.ledger.close()
        device_mode.moved.put_back()


def _card(gpu: str | Gpu | None, memory_bytes: int | None) -> Gpu:
    card = as_gpu(gpu)
    if card is None:
        if memory_bytes is None:
            raise UsageError("simulate() needs a card", hint='name one, such as simulate(gpu="A100 40GB")')
        return custom_gpu(memory_bytes)
    return dataclasses.replace(card, memory_bytes=memory_bytes) if memory_bytes is not None else card
