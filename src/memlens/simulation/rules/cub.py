"""Temporary storage of cub's device-wide sorts, as PyTorch calls them. Pure arithmetic.

`cub::DeviceRadixSort` (cub/device/dispatch/dispatch_radix_sort.cuh) with separate inputs and outputs keeps a
second copy of keys and values, plus the histograms and look-back words of its passes. Below a tile of 256
threads times 19 items of 4 bytes, one block sorts everything and nothing is kept.
"""

from __future__ import annotations

SINGLE_TILE_THREADS = 256
SINGLE_TILE_ITEMS = 19  # of 4 bytes, fewer of wider ones (cub's RegBoundScaling)
# Items of a tile of the large sort: 2,000 to 8,000 by card, key and value; the look-back words are 1 KiB a
# tile, so this moves the total by less than 5 %.
ONESWEEP_TILE = 3_072
RADIX_WORDS = 256 * 4


def radix_sort(items: int, key_bytes: int, value_bytes: int = 0) -> int:
    """Bytes of temporary storage for sorting `items` pairs; 1 where one block does it.

    >>> radix_sort(2048, 8, 8)
    1
    """
    widest = max(4, key_bytes, value_bytes)
    if items <= SINGLE_TILE_THREADS * max(1, SINGLE_TILE_ITEMS * 4 // widest):
        return 1
    tiles = -(-items // ONESWEEP_TILE)
    return items * (key_bytes + value_bytes) + (tiles + key_bytes) * RADIX_WORDS


def scan(items: int, word_bytes: int = 8) -> int:
    """Bytes for a device-wide prefix sum: two words a tile of at least 128 threads times 12 items."""
    return 2 * word_bytes * (-(-items // 1_536) + 32)
