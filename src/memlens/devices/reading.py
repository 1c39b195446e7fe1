"""A card's context from one figure that somebody read, where `memlens calibrate` cannot run.

Two figures are easy to read: what an idle CUDA process holds, and what nvidia-smi shows while a program runs
whose memory can be predicted. The context is the first, or the second less what is predicted to be reserved.
One reading is of one program: others load more kernels, or fewer, or cuDNN; the catalogue says by how much.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import NamedTuple

from memlens.devices.calibrated import Calibration
from memlens.devices.catalogue import read_catalogue
from memlens.devices.gpu import Gpu
from memlens.errors import UsageError
from memlens.units import MIB, format_mib


class Reserved(NamedTuple):
    """What a program is predicted to reserve, and whether it loads cuDNN."""

    low_bytes: int
    expected_bytes: int
    high_bytes: int
    has_cudnn: bool


def _kernel_bytes(gpu: Gpu) -> int:
    """What a training step loads beyond the bare context."""
    low, expected, _ = gpu.context.plain_bytes
    return expected - low


def _cudnn_bytes() -> int:
    return int(read_catalogue()["context_libraries"]["cudnn_mib"] * MIB)


def of_idle_process(gpu: Gpu, shown_bytes: int) -> Calibration:
    """`shown_bytes` is what a process holds that has a context and did no work; a program loads more."""
    working = shown_bytes + _kernel_bytes(gpu)
    return _calibration(
        gpu,
        f"{format_mib(shown_bytes)} idle",
        (shown_bytes, working, working + _cudnn_bytes()),
        (shown_bytes, working, working),
    )


def of_running_program(gpu: Gpu, shown_bytes: int, reserved: Reserved, program: str) -> Calibration:
    """`shown_bytes` is what is shown while `program` is at its peak.

    How far the prediction of what it reserves may be off, the context may be off too. Raises UsageError where
    more is predicted than was shown.
    """
    context = shown_bytes - reserved.expected_bytes
    shown = f"{format_mib(shown_bytes)} while {program} ran"
    if context <= 0:
        raise UsageError(
            f"{shown} leave nothing for a context: {format_mib(reserved.expected_bytes)} are predicted to be "
            "reserved alone",
            hint="read it after a whole step, and take a small program: a small prediction is off by little",
        )
    kernels, cudnn = _kernel_bytes(gpu), _cudnn_bytes()
    low = shown_bytes - reserved.high_bytes - kernels
    high = shown_bytes - reserved.low_bytes + kernels
    plain = (low - cudnn, context, high) if reserved.has_cudnn else (low, context, high)
    every = (low, context, high) if reserved.has_cudnn else (low, context, high + cudnn)
    return _calibration(gpu, shown, every, plain)


def _calibration(
    gpu: Gpu, reading: str, every: tuple[int, int, int], plain: tuple[int, int, int]
) -> Calibration:
    calibration = Calibration(
        name=gpu.name,
        memory_bytes=gpu.memory_bytes,
        compute_capability=gpu.compute_capability,
        cublas_workspace_bytes=gpu.cublas_workspace_bytes,
        context_bytes=_positive(every),
        measured=time.strftime("%Y-%m-%d"),
        reading=reading,
    )
    return replace(calibration, plain_context_bytes=_positive(plain))


def _positive(sizes: tuple[int, int, int]) -> tuple[int, int, int]:
    low, expected, high = sizes
    return max(low, 0), expected, high
