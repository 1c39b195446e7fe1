"""What the driver says a card holds, and this process's share of it, without making a CUDA context."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from memlens.devices.simulated import PROVIDERS, DeviceUse


def device_use(index: int, uuid: str = "", nvml: Any = None) -> DeviceUse:
    """Ask NVML for the card with this UUID, or this number where there is none; never raises.

    `nvml` is the module to ask, by default pynvml. A simulated card answers for itself.
    """
    if nvml is None and PROVIDERS:
        return PROVIDERS[-1].device_use()
    if nvml is None:
        try:
            import pynvml
        except ImportError:
            return DeviceUse(reason="nvidia-ml-py is not installed: pip install 'memlens[gpu]'")
        nvml = pynvml
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return DeviceUse(reason=f"no NVIDIA driver answers ({error})")
    try:
        handle = _handle(nvml, index, uuid)
        used = _used_bytes(nvml, handle)
        return _of_process(nvml, handle, used)
    except nvml.NVMLError as error:
        return DeviceUse(reason=f"the NVIDIA driver does not tell ({error})")
    finally:
        nvml.nvmlShutdown()


def _handle(nvml: Any, index: int, uuid: str) -> Any:
    """CUDA_VISIBLE_DEVICES renumbers the cards for torch, not for NVML; the UUID is the same for both."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
    if not uuid and index < len(visible) and (chosen := visible[index].strip()):
        index, uuid = (int(chosen), "") if chosen.isdigit() else (index, chosen)
    if uuid:
        with suppress(nvml.NVMLError):
            return nvml.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")
    return nvml.nvmlDeviceGetHandleByIndex(index)


def _used_bytes(nvml: Any, handle: Any) -> int:
    """Without what the driver keeps for itself, as nvidia-smi shows it since driver 510."""
    with suppress(nvml.NVMLError, AttributeError):
        return int(nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2).used)
    return int(nvml.nvmlDeviceGetMemoryInfo(handle).used)


def _of_process(nvml: Any, handle: Any, used: int) -> DeviceUse:
    try:
        running = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    except nvml.NVMLError as error:
        return DeviceUse(used, None, f"the driver does not list processes ({error})")
    except Exception:  # nvidia-ml-py's NVMLLibraryMismatchError is no NVMLError
        return DeviceUse(used, None, "the NVIDIA driver is older than nvidia-ml-py")
    mine = [process.usedGpuMemory for process in running if process.pid == os.getpid()]
    if not mine:
        return DeviceUse(used, None, "the driver lists processes under other numbers (a container)")
    # WSL2 and WDDM know no figure per process, and old bindings gave all ones instead of nothing
    if mine[0] is None or mine[0] > used:
        return DeviceUse(used, None, "the driver hides memory per process here (WSL, WDDM or MIG)")
    return DeviceUse(used, int(mine[0]))
