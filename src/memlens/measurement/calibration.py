"""What only the card itself can tell: its context and its workspace. A simulated card answers too."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import nn

from memlens.devices import usage
from memlens.devices.calibrated import Calibration
from memlens.errors import UsageError
from memlens.measurement.gap import WORKSPACES, device_uuid
from memlens.messages import ignore


def device_index() -> int:
    """The current CUDA device; raises UsageError where none answers."""
    if not torch.cuda.is_available():
        raise UsageError(
            "memlens calibrate needs a CUDA device, and none answers",
            hint="run it on the machine with the card; predictions use the catalogue meanwhile",
        )
    return int(torch.cuda.current_device())


def calibrate(say: Callable[[str], object] = ignore) -> Calibration:
    """Measure the current card's context and cuBLAS workspace; some ten seconds.

    `say` is told what is being done.
    """
    index = device_index()
    say("context")
    context, reason = context_bytes(index)
    say("cuBLAS workspace")
    properties = torch.cuda.get_device_properties(index)
    return Calibration(
        name=str(properties.name),
        memory_bytes=int(properties.total_memory),
        compute_capability=(int(properties.major), int(properties.minor)),
        cublas_workspace_bytes=cublas_workspace_bytes(index),
        context_bytes=context,
        measured=time.strftime("%Y-%m-%d"),
        torch=str(torch.__version__),
        driver=driver_version(),
        reason=reason,
    )


def context_bytes(index: int) -> tuple[tuple[int, int, int] | None, str]:
    """What this process holds outside the allocator: after init, after a step, after steps of every kind."""
    readings = []
    for work in (_touch, _step_of_linear, _step_of_every_kind):
        work()
        torch.cuda.synchronize()
        use = usage.device_use(index, device_uuid(index))
        if use.process_bytes is None:
            return None, use.reason
        readings.append(use.process_bytes - int(torch.cuda.memory_reserved(index)))
    # kernels are loaded as they are used, and never unloaded: the readings only grow
    low, expected, high = readings
    return (low, max(low, expected), max(low, expected, high)), ""


def _touch() -> None:
    torch.zeros(1, device="cuda")


def _train(model: nn.Module, x: torch.Tensor) -> None:
    model = model.cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    out = model(x)
    (out[0] if isinstance(out, tuple) else out).float().sum().backward()
    optimizer.step()


def _step_of_linear() -> None:
    _train(nn.Sequential(nn.Linear(64, 64), nn.ReLU()), torch.randn(8, 64, device="cuda"))


def _step_of_every_kind() -> None:
    images, words = torch.randn(2, 3, 32, 32, device="cuda"), torch.randn(2, 16, 64, device="cuda")
    convolution = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
    _train(convolution, images)
    _train(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), words)
    _train(nn.LSTM(64, 32, batch_first=True), words)


def cublas_workspace_bytes(index: int) -> int:
    """What a cuBLAS handle keeps in the allocator: of the sizes PyTorch uses, the one that blocks have."""
    torch.ones(4, 4, device="cuda") @ torch.ones(4, 4, device="cuda")
    sizes = [
        int(block.get("requested_size", block["size"]))
        for segment in torch.cuda.memory_snapshot()
        for block in segment["blocks"]
        if segment.get("device", index) == index and block["state"] == "active_allocated"
    ]
    return max((size for size in WORKSPACES if size in sizes), default=0)


def driver_version() -> str:
    from memlens.devices.nvml import installed_gpus

    return installed_gpus().driver
