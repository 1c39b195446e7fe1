"""The cards in this machine, asked of the driver through NVML; no CUDA context is made."""

from __future__ import annotations

from dataclasses import dataclass

from memlens.devices.gpu import Gpu
from memlens.devices.lookup import find_gpu
from memlens.errors import UsageError
from memlens.units import GIB


@dataclass(frozen=True, slots=True)
class InstalledGpu:
    """A card in this machine. `memory_bytes` is the driver's total, a little above what torch reports."""

    index: int
    name: str
    memory_bytes: int
    used_bytes: int
    compute_capability: tuple[int, int]
    known: Gpu | None


@dataclass(frozen=True, slots=True)
class Installed:
    """The cards that could be seen, or one sentence on why none can."""

    cards: tuple[InstalledGpu, ...] = ()
    driver: str = ""
    reason: str = ""


def installed_gpus() -> Installed:
    """Ask NVML for the cards in this machine; never raises."""
    try:
        import pynvml
    except ImportError:
        return Installed(reason="nvidia-ml-py is not installed: pip install 'memlens[gpu]'")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Installed(reason=f"no NVIDIA driver answers ({error})")
    try:
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        cards = tuple(_card(index) for index in range(pynvml.nvmlDeviceGetCount()))
        return Installed(cards, driver, "" if cards else "the NVIDIA driver reports no card")
    except pynvml.NVMLError as error:
        return Installed(reason=f"the NVIDIA driver does not tell ({error})")
    finally:
        pynvml.nvmlShutdown()


def _card(index: int) -> InstalledGpu:
    import pynvml as nvml

    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    name = str(nvml.nvmlDeviceGetName(handle))
    return InstalledGpu(
        index=index,
        name=name,
        memory_bytes=int(memory.total),
        used_bytes=int(memory.used),
        compute_capability=tuple(nvml.nvmlDeviceGetCudaComputeCapability(handle)),
        known=_catalogue_gpu(name, int(memory.total)),
    )


def _catalogue_gpu(name: str, memory_bytes: int) -> Gpu | None:
    """The card of the catalogue, by its name and memory, then by its name alone."""
    for spelling in (f"{name} {round(memory_bytes / GIB)}GB", name):
        try:
            return find_gpu(spelling)
        except UsageError:
            continue
    return None
