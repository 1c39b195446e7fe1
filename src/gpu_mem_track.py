"""Pytorch-Memory-Utils' module, which people copied beside their scripts: they run as they are.

A copy beside the script, where there is one, comes first.
"""

from memlens.compat.gpu_mem_track import MemTracker

__all__ = ["MemTracker"]
