"""The real run on the CPU, with the peak from the profiler's record of the CPU's allocator."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.coverage.places import Place, Prepare, Run
from benchmarks.coverage.seen import SCALAR_BYTES, Seen, describe, one_line

# reading or setting the CPU's generator makes a tensor of its state, which CUDA's has no equal of on the card
_GENERATOR_BYTES = torch.get_rng_state().numel()


def observe(prepare: Prepare, run: Run) -> Seen:
    """Run it on the CPU. The peak counts what was allocated in `run`, beside tensors that were there."""
    seen = Seen()
    try:
        state = prepare(Place("cpu"))
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            results = run(state)
        seen.tensors = describe(results, "cpu")
        seen.peak_bytes = peak_bytes(profiler.profiler.kineto_results.experimental_event_tree())
    except Exception as error:
        seen.error = one_line(error)
    return seen


def peak_bytes(roots: Iterable[Any]) -> int:
    """The most bytes that lived at one time, of those that came while the profiler looked."""
    live: dict[int, int] = {}
    now = peak = 0
    for allocation in sorted(_allocations(roots), key=lambda event: event.start_time_ns):
        fields = allocation.extra_fields
        if fields.alloc_size > SCALAR_BYTES and fields.alloc_size != _GENERATOR_BYTES:
            live[fields.ptr] = fields.alloc_size
            now += fields.alloc_size
            peak = max(peak, now)
        elif fields.alloc_size < 0:
            now -= live.pop(fields.ptr, 0)
    return peak


def _allocations(events: Iterable[Any]) -> Iterator[Any]:
    for event in events:
        if event.tag == torch._C._profiler._EventType.Allocation:
            yield event
        yield from _allocations(event.children)
