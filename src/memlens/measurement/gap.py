"""The gap between tensors and nvidia-smi, measured: PyTorch's counters beside the driver's."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from memlens.devices import usage
from memlens.devices.generations import all_generations
from memlens.model.gap import Gap
from memlens.units import format_count

# what PyTorch gives a cuBLAS handle by default, whatever the card
WORKSPACES = tuple(sorted({generation.cublas_workspace_bytes for generation in all_generations()}))


def measure_gap(index: int, storages: Collection[int]) -> Gap:
    """The parts of device `index`'s memory, given the sizes of the live storages on it, in bytes."""
    stats = torch.cuda.memory_stats(index)
    allocated = int(stats.get("allocated_bytes.all.current", 0))
    requested = int(stats.get("requested_bytes.all.current", allocated))
    reserved = int(stats.get("reserved_bytes.all.current", 0))
    tensors = sum(storages)
    unseen = requested - tensors
    sizes = _workspaces(index, storages) if unseen >= min(WORKSPACES) else {}
    workspaces = sum(size * count for size, count in sizes.items())
    use = usage.device_use(index, device_uuid(index))
    return Gap(
        tensor_bytes=tensors,
        rounding_bytes=allocated - requested,
        workspace_bytes=workspaces,
        unseen_bytes=unseen - workspaces,
        cached_bytes=reserved - allocated,
        used_bytes=use.used_bytes,
        process_bytes=use.process_bytes,
        reason=use.reason,
        workspaces=tuple(_said(size, count) for size, count in sizes.items()),
    )


def _workspaces(index: int, storages: Collection[int]) -> dict[int, int]:
    """How many live blocks have a workspace's size and belong to no tensor: size -> count."""
    blocks: dict[int, int] = {}
    for segment in torch.cuda.memory_snapshot():
        if segment.get("device", index) != index:
            continue
        for block in segment["blocks"]:
            if block["state"] == "active_allocated":
                size = _requested(block)
                blocks[size] = blocks.get(size, 0) + 1
    tensors = list(storages)
    spare = {size: blocks.get(size, 0) - tensors.count(size) for size in WORKSPACES}
    return {size: count for size, count in spare.items() if count > 0}


def _requested(block: dict[str, Any]) -> int:
    return int(block.get("requested_size", block["size"]))


def _said(size: int, count: int) -> str:
    return f"{count} cuBLAS workspace{'s' if count > 1 else ''} of {format_count(size)} B"


def device_uuid(index: int) -> str:
    """The UUID by which NVML knows torch's device; empty where torch does not tell, or has no CUDA yet."""
    if not torch.cuda.is_initialized():
        return ""  # asking would make a CUDA context
    return str(getattr(torch.cuda.get_device_properties(index), "uuid", ""))
