"""GPU memory of processes, as the NVIDIA driver tells it (NVML). What it will not tell has a reason."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Any

# one of them is there where an NVIDIA driver is; the second is WSL's. Looking spares loading NVML: 40 ms
DRIVER_FILES = ("/dev/nvidiactl", "/dev/dxg", "/proc/driver/nvidia")


class Gpus:
    """All cards of this machine. `reason` says why the last reading has no figure; None if it has.

    `cards` is empty where nothing can ever be read; a card that is split (MIG) is asked part by part.
    """

    def __init__(self, nvml: Any = None) -> None:
        self.reason: str | None = None
        self.cards: list[Any] = []
        self._parts: list[Any] = []
        self._nvml = nvml
        if nvml is None and sys.platform == "linux" and not any(map(os.path.exists, DRIVER_FILES)):
            self.reason = "no NVIDIA driver is loaded here"
            return
        try:
            if nvml is None:
                import pynvml

                self._nvml = pynvml
        except ImportError:
            self.reason = "nvidia-ml-py is not installed (pip install 'memlens[gpu]')"
            return
        try:
            self._nvml.nvmlInit()
            count = self._nvml.nvmlDeviceGetCount()
            self.cards = [self._nvml.nvmlDeviceGetHandleByIndex(number) for number in range(count)]
            self._parts = [part for card in self.cards for part in self._parts_of(card)]
        except self._nvml.NVMLError as error:
            self.reason = f"the NVIDIA driver says: {error}"

    def _parts_of(self, card: Any) -> list[Any]:
        """The instances that a card is split into, or the card itself."""
        nvml = self._nvml
        try:
            if not nvml.nvmlDeviceGetMigMode(card)[0]:
                return [card]
            most = nvml.nvmlDeviceGetMaxMigDeviceCount(card)
        except nvml.NVMLError:
            return [card]  # a card that cannot be split
        parts = []
        for number in range(most):
            with suppress(nvml.NVMLError):  # there are fewer than it could have
                parts.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, number))
        return parts or [card]

    def read(self) -> dict[int, int]:
        """pid -> bytes over all cards, for the processes whose figure the driver gives. Sets `reason`."""
        held: dict[int, int] = {}
        reason = None
        for part in self._parts:
            try:
                running = self._nvml.nvmlDeviceGetComputeRunningProcesses(part)
                total = int(self._nvml.nvmlDeviceGetMemoryInfo(part).total)
            except self._nvml.NVMLError as error:
                reason = f"the NVIDIA driver says: {error}"
                continue
            except Exception:  # nvidia-ml-py's NVMLLibraryMismatchError is no NVMLError
                reason = (
                    "the NVIDIA driver is older than nvidia-ml-py, which asks it in a way it does not know"
                )
                continue
            for process in running:
                # some drivers fill an unknown figure with ones: more than the card has is no figure
                if process.usedGpuMemory is None or process.usedGpuMemory > total:
                    reason = "the driver hides memory per process here (WSL, WDDM or MIG)"
                else:
                    held[process.pid] = held.get(process.pid, 0) + process.usedGpuMemory
        if self.cards:
            self.reason = None if held else reason
        return held

    def used_bytes(self) -> int | None:
        """Memory in use on all cards by everybody: the fallback where processes cannot be told apart."""
        if not self.cards:
            return None
        try:
            return sum(int(self._nvml.nvmlDeviceGetMemoryInfo(card).used) for card in self.cards)
        except self._nvml.NVMLError:
            return None
