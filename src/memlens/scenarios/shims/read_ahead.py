"""Weights that are read while others are quantised: how many wait on the device is a race between threads.

transformers 5.0 to 5.3 read a checkpoint with four threads in the order of the names, while one thread
quantises in that order. As long as one of them reads the largest weight that is not quantised (the
embedding), the other three run ahead, and what they read lies on the device in 16 bits. They may get nowhere
or through all of it: half of it is expected, and replays with none and with all are the range.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

from memlens.allocator import Uncertain, spread
from memlens.model import Assumption

# core_model_loading.py: GLOBAL_WORKERS, and the versions without `has_on_the_fly_quantization`
_READERS = 4
_VERSIONS = ((5, 0), (5, 4))
_QUANTISED = ("Params4bit", "Int8Params")


def has_read_ahead(version: str) -> bool:
    """Whether this transformers reads weights ahead of their quantisation.

    >>> [has_read_ahead(v) for v in ("4.57.1", "5.0.0", "5.3.0.dev0", "5.4.0")]
    [False, True, True, False]
    """
    major, minor = (int(part) for part in version.split(".")[:2])
    return _VERSIONS[0] <= (major, minor) < _VERSIONS[1]


def ahead(model: Any) -> list[int]:
    """Bytes of each weight that may be read ahead, in order: three for each byte of the largest other."""
    weights = list(model.parameters())
    others = (p.nbytes for p in weights if type(p).__name__ not in _QUANTISED)
    most = (_READERS - 1) * max(others, default=0)
    sizes = [2 * p.numel() for p in weights if type(p).__name__ in _QUANTISED]
    return [size for size, read in zip(sizes, accumulate(sizes), strict=True) if read <= most]


@contextmanager
def reading_ahead(sim: Any, sizes: list[int]) -> Iterator[None]:
    """Inside, the first half of these bytes is on the device; how many of them are becomes an assumption."""
    import torch

    start, half = len(sim.events), sum(sizes) // 2
    held, ids = [], []
    for size, read in zip(sizes, accumulate(sizes), strict=True):
        if read <= half:
            held.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
        ids.append(sim.ledger.last_id if read <= half else 0)
    yield
    held.clear()
    end = len(sim.events)
    uncertain = [Uncertain(start, key, 0, size, until=end) for key, size in zip(ids, sizes, strict=True)]
    if uncertain:
        sim.at_end.append(lambda: sim.assume(_assumption(sim, uncertain)))


def _assumption(sim: Any, sizes: list[Uncertain]) -> Assumption:
    moves = spread(sim.events, sim.allocator.config, sizes)
    return Assumption(
        f"half of the {len(sizes):,} weights that may be read ahead of their quantisation are",
        "transformers 5.0 to 5.3 read with four threads while one tensor is quantised or waited for; what "
        "piles up in 16 bits stays reserved",
        *moves.reserved_bytes,
        moves.allocated_bytes,
    )
