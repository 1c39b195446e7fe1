"""Pytorch-Memory-Utils' name, so that only the module's changes in `from gpu_mem_track import MemTracker`."""

from memlens.integrations.tracker import MemTracker

__all__ = ["MemTracker"]
