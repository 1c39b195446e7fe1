"""What a driver, and PyTorch's own snapshots, would say of the simulated card and its tensors."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from memlens.allocator.config import to_snapshot
from memlens.devices.simulated import DeviceUse
from memlens.records.snapshot_writer import snapshot_dict
from memlens.units import MIB

if TYPE_CHECKING:
    from memlens.allocator import SegmentView
    from memlens.simulation.core.session import Simulation
    from memlens.simulation.torch_api.device import DeviceMode

_STATES = {"used": "active_allocated", "free": "inactive", "pending": "active_pending_free"}


class SimulatedCard:
    """What memlens' own measuring is told (devices/simulated.py): nothing but this process is on the card."""

    def __init__(self, sim: Simulation, mode: DeviceMode) -> None:
        self.sim, self.mode = sim, mode

    def device_of(self, tensor: Any) -> Any:
        return self.mode.device_of(tensor)

    def device_use(self) -> DeviceUse:
        held_bytes = self.sim.gpu.context_bytes[1] + self.sim.allocator.reserved_bytes
        return DeviceUse(held_bytes, held_bytes)


def driver_functions(sim: Simulation) -> dict[str, Any]:
    """Stand-ins by dotted name: nothing but this process is on the card."""
    context = sim.gpu.context_bytes[1]

    def memory_snapshot(mempool_id: Any = None, include_traces: bool = True) -> list[dict[str, Any]]:
        return [segment_dict(segment) for segment in sim.allocator.snapshot_segments()]

    def snapshot(device: Any = None, augment_with_fx_traces: bool = False) -> dict[str, Any]:
        settings = to_snapshot(sim.allocator.config)
        return snapshot_dict(replace(sim.trace, metadata={"allocator_settings": settings}))

    def list_gpu_processes(device: Any = None) -> str:
        held = context + sim.allocator.reserved_bytes
        return f"GPU:0\nprocess {os.getpid():>10d} uses {held / MIB:>12.3f} MB GPU memory"

    return {
        "torch.cuda.memory._snapshot": snapshot,
        "torch.cuda.memory._record_memory_history": lambda *args, **kwargs: None,
        "torch.cuda.list_gpu_processes": list_gpu_processes,
        "torch.cuda.memory.list_gpu_processes": list_gpu_processes,
        "torch.cuda.memory_snapshot": memory_snapshot,
        "torch.cuda.memory.memory_snapshot": memory_snapshot,
    }


def segment_dict(segment: SegmentView) -> dict[str, Any]:
    """A segment as `torch.cuda.memory_snapshot()` lists it, without stacks."""
    blocks = [
        {
            "address": block.address,
            "size": block.bytes,
            "requested_size": block.requested_bytes,
            "state": _STATES[block.state],
        }
        for block in segment.blocks
        if block.state in _STATES
    ]
    return {
        "device": 0,
        "address": segment.address,
        "total_size": segment.bytes,
        "allocated_size": sum(b["size"] for b in blocks if b["state"] == "active_allocated"),
        "active_size": sum(b["size"] for b in blocks if b["state"] != "inactive"),
        "stream": segment.stream,
        "segment_type": "small" if segment.small else "large",
        "is_expandable": segment.expandable,
        "blocks": blocks,
    }
