"""Pytorch-Memory-Utils' name; `gpu_mem_track` itself is this, too, for scripts that stay unchanged."""

from memlens.integrations.tracker import MemTracker

__all__ = ["MemTracker"]
