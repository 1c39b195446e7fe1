"""GPU memory of processes, as the NVIDIA driver tells it (NVML). What it will not tell has a reason."""

from __future__ import annotations

import os
import sys
from typing import Any

# one of them is there where an NVIDIA driver is; the second is WSL's. Looking spares loading NVML: 40 ms
DRIVER_FILES = ("/dev/nvidiactl", "/dev/dxg", "/proc/driver/nvidia")


class Gpus:
    """All cards of this machine. `reason` says why there is no figure, None while there is one."""

    def __init__(self, nvml: Any = None) -> None:
        self.reason: str | None = None
        self._handles: list[Any] = []
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
            self._handles = [self._nvml.nvmlDeviceGetHandleByIndex(number) for number in range(count)]
        except self._nvml.NVMLError as error:
            self.reason = f"the NVIDIA driver says: {error}"

    def read(self) -> dict[int, int]:
        """pid -> bytes over all cards, for the processes whose figure the driver gives. Sets `reason`."""
        held: dict[int, int] = {}
        hidden = False
        for handle in self._handles:
            try:
                running = self._nvml.nvmlDeviceGetComputeRunningProcesses(handle)
            except self._nvml.NVMLError as error:
                self.reason = f"the NVIDIA driver says: {error}"
                continue
            for process in running:
                if process.usedGpuMemory is None:
                    hidden = True
                else:
                    held[process.pid] = held.get(process.pid, 0) + process.usedGpuMemory
        if hidden and not held:
            self.reason = "the driver hides memory per process here (WSL, WDDM or MIG)"
        return held

    def used_bytes(self) -> int | None:
        """Memory in use on all cards by everybody: the fallback where processes cannot be told apart."""
        if not self._handles:
            return None
        try:
            return sum(int(self._nvml.nvmlDeviceGetMemoryInfo(handle).used) for handle in self._handles)
        except self._nvml.NVMLError:
            return None
