"""Pytorch-Memory-Utils' name; `gpu_mem_track` itself is this, too, for scripts that are not to be changed."""

from memlens.integrations.tracker import MemTracker

__all__ = ["MemTracker"]
