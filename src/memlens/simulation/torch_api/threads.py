"""Threads that the program starts inside a simulation see the device too.

Modes and dispatch keys are each thread's own, so a new thread gets its copies before it runs. One operator
runs at a time, whoever asks for it: the allocator is one.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch

from memlens.simulation.dispatch.mode import DispatchMode
from memlens.simulation.torch_api.device import DeviceMode

if TYPE_CHECKING:
    from memlens.simulation.core.session import Simulation

_AUTOCAST = torch._C.DispatchKey.AutocastCUDA


class _ThreadsDevice(DeviceMode):
    """The device as another thread than the simulation's sees it; nothing once the simulation has ended."""

    def __init__(self, mode: DeviceMode) -> None:
        super().__init__(mode.sim)
        self.moved, self.default, self.factories = mode.moved, mode.default, mode.factories

    def __torch_function__(
        self, func: Any, types_: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if self.sim.ledger.closed:
            return func(*args, **(kwargs or {}))
        return super().__torch_function__(func, types_, args, kwargs)


def replacements(sim: Simulation, device: DeviceMode, dispatch: DispatchMode) -> dict[str, Any]:
    """Every `threading.Thread` that is started takes part in the simulation."""
    begin = threading.Thread._bootstrap_inner  # type: ignore[attr-defined]

    def inside(self: threading.Thread) -> None:
        if sim.ledger.closed:
            begin(self)
            return
        torch._C._dispatch_tls_set_dispatch_key_included(_AUTOCAST, True)
        with dispatch.for_thread(), _ThreadsDevice(device):
            begin(self)

    return {"threading.Thread._bootstrap_inner": inside}
