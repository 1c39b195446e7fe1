"""What the driver says of a card and of this process, and the reason where it will not say."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import pytest

from memlens.devices.simulated import DeviceUse
from memlens.devices.usage import device_use
from memlens.model.gap import Gap
from memlens.render.tensors import equation, gap_table

GIB = 1 << 30
ALL_ONES = (1 << 64) - 1  # what old bindings gave for "not available"


class Refused(Exception):
    """A driver's error."""


def driver(used: int, processes: list[tuple[int, int | None]] | None, **without: Any) -> Any:
    """A driver that answers so: bytes in use on the card, and (pid, bytes) of its processes."""

    def running(handle: Any) -> list[Any]:
        if processes is None:
            raise Refused("Not Supported")
        return [SimpleNamespace(pid=pid, usedGpuMemory=size) for pid, size in processes]

    def init() -> None:
        if without.get("missing"):
            raise Refused("Driver Not Loaded")

    return SimpleNamespace(
        NVMLError=Refused,
        nvmlMemory_v2=2,
        nvmlInit=init,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetHandleByUUID=lambda uuid: uuid,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetMemoryInfo=lambda handle, version=1: SimpleNamespace(used=used),
        nvmlDeviceGetComputeRunningProcesses=running,
    )


def test_a_driver_that_tells_everything() -> None:
    """Both figures come, and no reason."""
    nvml = driver(3 * GIB, [(1, GIB), (os.getpid(), 2 * GIB)])
    assert device_use(0, nvml=nvml) == DeviceUse(3 * GIB, 2 * GIB)


@pytest.mark.parametrize(("processes", "reason"), [
    ([(os.getpid(), None)], "WSL"),
    ([(os.getpid(), ALL_ONES)], "WSL"),
    ([(1, GIB)], "container"),
    ([], "container"),
    (None, "Not Supported"),
])  # fmt: skip
def test_a_driver_that_hides_processes(processes: Any, reason: str) -> None:
    """WSL2, containers and MIG: the card's total as fallback, a reason, and never a number of 2^64 bytes."""
    found = device_use(0, nvml=driver(GIB, processes))
    assert (found.used_bytes, found.process_bytes) == (GIB, None)
    assert reason in found.reason


def test_no_driver() -> None:
    """No figure, and why."""
    found = device_use(0, nvml=driver(0, [], missing=True))
    assert found.used_bytes is None
    assert "Driver Not Loaded" in found.reason


def test_a_gap_that_closes_either_way() -> None:
    """The parts sum to the driver's figure, whether or not it tells processes apart."""
    known = Gap(100, 12, 20, 0, 68, used_bytes=500, process_bytes=300)
    hidden = Gap(100, 12, 20, 0, 68, used_bytes=500, process_bytes=None, reason="a container")
    for gap in (known, hidden):
        assert sum(part.bytes for part in gap.parts()) == 500
    assert "context and other processes apart: n/a: a container" in gap_table(hidden)
    assert "(apart n/a: a container)" in equation(hidden)


def test_a_gap_without_a_driver() -> None:
    """What PyTorch reserved is explained, and the rest is n/a with its reason, never 0."""
    gap = Gap(100, 12, 20, 0, 68, reason="no NVIDIA driver answers")
    assert sum(part.bytes for part in gap.parts()) == gap.reserved_bytes == 200
    assert "n/a: no NVIDIA driver answers" in gap_table(gap)
    assert "other processes" not in gap_table(gap)


@pytest.mark.parametrize(("visible", "handle"), [("", 0), ("2,1", 2), ("GPU-5a, 1", "GPU-5a")])
def test_cards_are_renumbered_for_cuda(visible: str, handle: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where torch has not said which card its first is, CUDA_VISIBLE_DEVICES does."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    nvml, asked = driver(GIB, []), []
    nvml.nvmlDeviceGetMemoryInfo = lambda handle, version=1: asked.append(handle) or SimpleNamespace(used=GIB)
    device_use(0, nvml=nvml)
    assert asked == [handle]
