"""How the CUDA caching allocator rounds, pools and splits: pure functions of sizes.

Sizes from c10/core/AllocatorConfig.h:17-25, rules from c10/cuda/CUDACachingAllocator.cpp (round_size,
get_allocation_size, should_split), torch 2.14.1. The sizes have been the same since torch 1.0, except that
the large segment became a setting.
"""

from __future__ import annotations

from memlens.allocator.config import ROUNDUP_INTERVALS, AllocatorConfig
from memlens.units import MIB

MIN_BLOCK_BYTES = 512  # kMinBlockSize: every size is rounded up to a multiple of it
SMALL_BYTES = MIB  # kSmallSize: up to here a request goes to the small pool
SMALL_SEGMENT_BYTES = 2 * MIB  # kSmallBuffer
MIN_LARGE_BYTES = 10 * MIB  # kMinLargeAlloc: below it a request shares a large segment
ROUND_LARGE_BYTES = 2 * MIB  # kRoundLarge


def round_request(requested_bytes: int, config: AllocatorConfig) -> int:
    """The size that a request is rounded up to.

    >>> round_request(513, AllocatorConfig())
    1024
    """
    divisions = _divisions(requested_bytes, config)
    if divisions > 1 and requested_bytes > MIN_BLOCK_BYTES * divisions:
        return _next_division(requested_bytes, divisions)
    return max(-(-requested_bytes // MIN_BLOCK_BYTES) * MIN_BLOCK_BYTES, MIN_BLOCK_BYTES)


def segment_bytes(size: int, config: AllocatorConfig) -> int:
    """What cudaMalloc is asked for when no free block holds a rounded `size`.

    >>> [segment_bytes(size, AllocatorConfig()) // MIB for size in (512, MIB + 512, 10 * MIB, 11 * MIB)]
    [2, 20, 10, 12]
    """
    if size <= SMALL_BYTES:
        return SMALL_SEGMENT_BYTES
    if size < MIN_LARGE_BYTES:
        return config.large_segment_bytes
    return -(-size // ROUND_LARGE_BYTES) * ROUND_LARGE_BYTES


def page_bytes(small: bool, config: AllocatorConfig) -> int:
    """The granularity in which an expandable segment grows."""
    return SMALL_SEGMENT_BYTES if small else config.large_segment_bytes


def should_split(remaining_bytes: int, size: int, small: bool, config: AllocatorConfig) -> bool:
    """Whether the remainder of a block becomes a free block of its own, or stays with the allocation."""
    if small or config.expandable_segments:
        return remaining_bytes >= MIN_BLOCK_BYTES
    unlimited = config.max_split_bytes is None or size < config.max_split_bytes
    return unlimited and remaining_bytes > SMALL_BYTES


def _divisions(requested_bytes: int, config: AllocatorConfig) -> int:
    """The divisions of the power-of-two interval that contains the request."""
    interval = requested_bytes.bit_length() - MIB.bit_length()
    return config.roundup_power2_divisions[min(max(interval, 0), ROUNDUP_INTERVALS - 1)]


def _next_division(size: int, divisions: int) -> int:
    """`size` rounded up to the next of `divisions` equal steps between two powers of two.

    >>> _next_division(1200, 4)
    1280
    """
    floor = 1 << (size.bit_length() - 1)
    if size == floor:
        return size
    step = floor >> (divisions.bit_length() - 1)
    if step == 0:
        return floor << 1
    return -(-size // step) * step
