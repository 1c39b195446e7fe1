"""The CUDA caching allocator, simulated. Standard library only."""

from memlens.allocator.blocks import Block, BlockView, SegmentView
from memlens.allocator.config import AllocatorConfig, from_environment, from_snapshot, parse_config, text_in
from memlens.allocator.oom import DeviceFull, message
from memlens.allocator.replay import Verification, replay, verify
from memlens.allocator.simulator import CachingAllocator
from memlens.allocator.what_if import Late, Spread, Uncertain, spread

__all__ = [
    "AllocatorConfig",
    "Block",
    "BlockView",
    "CachingAllocator",
    "DeviceFull",
    "Late",
    "SegmentView",
    "Spread",
    "Uncertain",
    "Verification",
    "from_environment",
    "from_snapshot",
    "message",
    "parse_config",
    "replay",
    "spread",
    "text_in",
    "verify",
]
