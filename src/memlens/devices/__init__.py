"""The cards memlens knows: their memory, their CUDA context, their workspaces, each with its source."""

from memlens.devices.gpu import Gpu
from memlens.devices.lookup import all_gpus, as_gpu, custom_gpu, find_gpu, find_in_catalogue
from memlens.devices.nvml import Installed, InstalledGpu, installed_gpus

__all__ = [
    "Gpu",
    "Installed",
    "InstalledGpu",
    "all_gpus",
    "as_gpu",
    "custom_gpu",
    "find_gpu",
    "find_in_catalogue",
    "installed_gpus",
]
