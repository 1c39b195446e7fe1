"""What a driver and the allocator's own snapshot would say of the simulated card."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memlens.devices.usage import DeviceUse

if TYPE_CHECKING:
    from memlens.allocator import SegmentView
    from memlens.simulation.session import Simulation

_STATES = {"used": "active_allocated", "free": "inactive", "pending": "active_pending_free"}


def driver_functions(sim: Simulation) -> dict[str, Any]:
    """Stand-ins by dotted name: nothing but this process is on the card."""
    context = sim.gpu.context_bytes[1]

    def device_use(index: int, uuid: str = "", nvml: Any = None) -> DeviceUse:
        held = context + sim.allocator.reserved_bytes
        return DeviceUse(held, held)

    def memory_snapshot(mempool_id: Any = None, include_traces: bool = True) -> list[dict[str, Any]]:
        return [segment_dict(segment) for segment in sim.allocator.snapshot_segments()]

    return {
        "memlens.devices.usage.device_use": device_use,
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
