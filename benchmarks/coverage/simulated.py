"""The same run on a GPU that is not there, with what the ledger says of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from benchmarks.coverage.places import Place, Prepare, Run
from benchmarks.coverage.seen import SCALAR_BYTES, Seen, describe, one_line, storages_of
from memlens.errors import MemlensError
from memlens.model import Alloc, Category, Event, Free
from memlens.simulation import Simulation


def observe(sim: Simulation, prepare: Prepare, run: Run) -> Seen:
    """Run it on the simulated device: metadata, peak of what was requested, and storages uncounted.

    cuBLAS' workspace is left out of the peak: the CPU has none.
    """
    seen = Seen()
    sim.trace.assumptions.clear()  # each is said once; another sample may have said it
    watch = _Watch(sim, seen)
    try:
        state = prepare(Place("cuda"))
        start = len(sim.events)
        sim.watch = watch
        results = run(state)
        sim.watch = None
        seen.peak_bytes = peak_bytes(sim.events[start:])
        seen.tensors = describe(results, "cuda")
        for name, tensor in results.items():
            watch.check(name, tensor)
    except Exception as error:
        seen.error = one_line(error)
        seen.refused = isinstance(error, MemlensError)
    finally:
        sim.watch = None
    seen.assumptions = [a.what for a in sim.trace.assumptions]
    return seen


# the CPU converts such arguments first (TensorIterator), a CUDA kernel while it reads them
MIXED = " of mixed dtypes"


def _mixes_dtypes(func: Any, args: Any) -> bool:
    if torch.Tag.pointwise not in func.tags:
        return False
    operands = args[1:] if func.overloadpacket is torch.ops.aten.where else args
    tensors = [value for value in pytree.tree_leaves(operands) if isinstance(value, Tensor) and value.dim()]
    return len({tensor.dtype for tensor in tensors}) > 1


class _Watch:
    """Asked after every operator: is what it returned in the ledger, with the bytes that it has?"""

    def __init__(self, sim: Simulation, seen: Seen) -> None:
        self.sim, self.seen = sim, seen

    def __call__(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        if any(
            isinstance(t, Tensor) and self.sim.is_cuda(t) for t in pytree.tree_leaves((args, kwargs, out))
        ):
            self.seen.kernels.add(func.name() + (MIXED if _mixes_dtypes(func, args) else ""))
            self.check(func.name(), out)

    def check(self, name: str, value: Any) -> None:
        for tensor in pytree.tree_leaves(value):
            if not isinstance(tensor, Tensor) or not tensor.is_meta or tensor.is_nested:
                continue
            for part in storages_of(tensor):
                self._check_storage(name, part)

    def _check_storage(self, name: str, tensor: Tensor) -> None:
        entry = self.sim.ledger.of(tensor)
        nbytes = tensor.untyped_storage().nbytes()
        if entry is None:
            self.seen.uncounted.append(f"{name}: {nbytes} bytes that the ledger does not hold")
        elif entry.nbytes != nbytes:
            self.seen.uncounted.append(f"{name}: {nbytes} bytes, of which the ledger has {entry.nbytes}")


def peak_bytes(events: list[Event]) -> int:
    """The most bytes requested at one time, of those that came in `events`."""
    live: dict[int, int] = {}
    now = peak = 0
    for event in events:
        if isinstance(event, Alloc):
            if event.category is not Category.WORKSPACE and event.requested > SCALAR_BYTES:
                live[event.id] = event.requested
                now += event.requested
                peak = max(peak, now)
        elif isinstance(event, Free):
            now -= live.pop(event.id, 0)
    return peak
