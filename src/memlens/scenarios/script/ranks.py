"""A script of several ranks, of which one is run: what it is told, and what the others would change."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

from memlens.model import Alloc, Assumption, Category, Free, Trace
from memlens.model.user_code import Whose, whose
from memlens.patching import replaced

# what torchrun tells the only rank of one
TORCHRUN = {
    "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1", "GROUP_RANK": "0",
    "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
}  # fmt: skip


def asked_of_torchrun(unset: set[str]) -> replaced:
    """Note in `unset` what the script asks of torchrun's variables and does not get."""
    environment: Any = os.environ.__class__
    get = environment.__getitem__

    def noting(self: Any, key: str) -> str:
        try:
            return str(get(self, key))
        except KeyError:
            if key in TORCHRUN and _asks():
                unset.add(key)
            raise

    return replaced({(environment, "__getitem__"): noting})


def _asks() -> bool:
    """Whether the script's own code asks for a variable, by whatever function of Python."""
    frame: Any = sys._getframe(2)
    while frame is not None and whose(frame.f_code.co_filename) is Whose.PYTHON:
        frame = frame.f_back
    return frame is not None and whose(frame.f_code.co_filename) is Whose.USER


def other_ranks(ranks: str, trace: Trace) -> Iterator[Assumption]:
    """What is stated where `ranks` processes were asked for; empty: one was.

    A library that finds itself alone leaves DistributedDataParallel out. Its buckets hold every gradient a
    second time.
    """
    if not ranks:
        return
    buckets = any(isinstance(e, Alloc) and e.category is Category.COMMUNICATION for e in trace.events)
    why = "each needs as much where every rank has the whole model; less where it is shared among them"
    yield Assumption(
        f"{ranks} processes were asked for, and one was run",
        why if buckets else f"{why}; buckets of DistributedDataParallel may come on top",
        high_bytes=0 if buckets else most_bytes(trace, Category.GRADIENT),
    )


def most_bytes(trace: Trace, category: Category) -> int:
    """The most bytes of a category that were alive at a time."""
    sizes = {e.id: e.bytes for e in trace.events if isinstance(e, Alloc) and e.category is category}
    held = most = 0
    for event in trace.events:
        if isinstance(event, Alloc | Free) and event.id in sizes:
            held += -sizes[event.id] if isinstance(event, Free) else sizes[event.id]
            most = max(most, held)
    return most
