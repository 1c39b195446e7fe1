"""4-bit weights on their way to the card, as transformers brings them there.

transformers 5.0 reads the checkpoint with four threads (`GLOBAL_WORKERS`, core_model_loading.py) in the
order of the names. Each makes its float16 tensor on the card as soon as it begins; the main thread
quantises in order. While one thread reads the embedding, the others run ahead, and float16 weights pile up
on the card: they no longer fit into the block made for the 4-bit ones (`caching_allocator_warmup`), and the
segments they take stay reserved. How far they get is a race. Where nothing else is said every thread reads
equally many bytes in the same time; `share` of that time is what the weights that stay in float16 take.
Later versions (5.8 and 5.17 do) quantise one after the other: `threads=0`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

THREADS = 4  # `min(4, os.cpu_count())`, and the machines that lend a T4 have four cores


def is_4bit(parameter: Any) -> bool:
    return type(parameter).__name__ == "Params4bit"


def in_order(names: list[str]) -> list[str]:
    """As `dot_natural_key` sorts them: numbers by value."""
    return sorted(
        names, key=lambda name: [(not p.isdigit(), int(p) if p.isdigit() else p) for p in name.split(".")]
    )


def arrivals(times: list[float], threads: int, begin: Callable[[int], None]) -> Iterator[int]:
    """Tensors in order, each when it has been read; `begin(i)` when a thread takes up the i-th.

    >>> begun = []
    >>> [(i, len(begun)) for i in arrivals([4, 1, 1, 1, 1, 1], 2, begun.append)]
    [(0, 6), (1, 6), (2, 6), (3, 6), (4, 6), (5, 6)]
    >>> begun = []
    >>> [(i, len(begun)) for i in arrivals([1, 1, 1], 0, begun.append)]
    [(0, 1), (1, 2), (2, 3)]
    """
    reading: list[tuple[float, int]] = []
    waiting = iter(range(len(times)))
    read: set[int] = set()
    wanted = 0

    def take(now: float) -> None:
        for number in waiting:
            begin(number)
            heapq.heappush(reading, (now + times[number], number))
            return

    for _ in range(max(1, threads)):
        take(0)
    while reading:
        now, number = heapq.heappop(reading)
        read.add(number)
        if threads:
            take(now)
        while wanted in read:
            yield wanted
            wanted += 1
        if not threads:
            take(now)


def load(model: Any, threads: int, share: float = 1.0) -> Any:
    """The model's parameters on the card, 4-bit where they are to be; tied ones once; buffers last."""
    import bitsandbytes

    empty = dict(model.named_parameters())
    names = in_order(list(empty))
    room = sum(p.numel() // 2 if is_4bit(p) else p.nbytes for p in empty.values())
    block = torch.empty(room // 2, dtype=torch.float16, device="cuda")
    del block
    held: dict[int, Tensor] = {}

    def begin(number: int) -> None:
        held[number] = torch.empty(empty[names[number]].shape, dtype=torch.float16, device="cuda")

    times = [p.numel() * (1.0 if is_4bit(p) else share) for p in map(empty.get, names)]
    for number in arrivals(times, threads, begin):
        parameter, value = empty[names[number]], held.pop(number)
        new: Any = nn.Parameter(value)
        if is_4bit(parameter):
            options = parameter.__dict__
            new = bitsandbytes.nn.Params4bit(value, requires_grad=False, **options).to("cuda")
        path, _, leaf = names[number].rpartition(".")
        setattr(model.get_submodule(path), leaf, new)
        del value, new
    model.tie_weights()
    return model.to("cuda")
