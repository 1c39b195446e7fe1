"""The moment when memory runs out, written down: numbers, holders, the allocator's history, advice."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType

import psutil
import torch
from torch import nn

from memlens.allocator import from_snapshot, verify
from memlens.errors import MemlensError
from memlens.explanation.explain import lines
from memlens.explanation.fragmentation import pool_use
from memlens.explanation.modules import UNKNOWN, module_uses
from memlens.explanation.oom_cause import Cause, causes
from memlens.measurement.gap import measure_gap
from memlens.measurement.oom.history import NOTHING, AllocatorHistory
from memlens.measurement.oom.remedies import OomFacts, advise
from memlens.measurement.tensors import names as names
from memlens.measurement.tensors.census import CENSUS
from memlens.measurement.tensors.referrers import who_holds
from memlens.measurement.tensors.stacks import locals_of
from memlens.measurement.tensors.watch import Taken, TensorWatch
from memlens.model import Category, Trace
from memlens.model.oom import Failure, PoolState
from memlens.model.tensors import group
from memlens.model.user_code import Whose, whose
from memlens.records.torch_snapshot import trace_of
from memlens.units import GIB, KIB, MIB

FEW = 3  # losses with graphs alive at once that a loop may well have
TOP = 8  # holders of each kind that are told
# what the devices' errors say; CUDA's has a type of its own, the others are RuntimeErrors
_MESSAGES = (
    "MPS backend out of memory",
    "CUDA out of memory",
    "NVML_SUCCESS == r INTERNAL ASSERT FAILED",  # how a MIG slice runs out
    "DefaultCPUAllocator: can't allocate memory",
    "DefaultCPUAllocator: not enough memory",
)


def is_oom(error: BaseException | None) -> bool:
    """Whether an exception says that a device's memory ran out: by its type, else by its words.

    >>> is_oom(RuntimeError("MPS backend out of memory (MPS allocated: 8 GB)")), is_oom(ValueError())
    (True, False)
    """
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _MESSAGES)


def device_of(error: BaseException) -> torch.device:
    """The kind of device that an error is about, by its words."""
    text = str(error)
    if "DefaultCPUAllocator" in text:
        return torch.device("cpu")
    return torch.device("mps", 0) if text.startswith("MPS") else torch.device("cuda", 0)


# MPS counts a KB as 1,024 bytes (format_size in aten/src/ATen/mps/MPSAllocator.mm)
_UNITS = {"bytes": 1, "KB": KIB, "MB": MIB, "GB": GIB}


def asked_of(error: BaseException) -> int | None:
    """The bytes that a failed request was for, where the error says so; MPS rounds them to hundredths.

    >>> asked_of(RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 4096 bytes."))
    4096
    """
    match = re.search(r"tried to allocate (\d+(?:\.\d+)?) (bytes|[KMG]B)\b", str(error), re.IGNORECASE)
    return round(float(match[1]) * _UNITS[match[2]]) if match else None


def collect(
    device: torch.device,
    frame: FrameType | None,
    asked_bytes: int | None = None,
    free_bytes: int | None = None,
    total_bytes: int | None = None,
    kept: AllocatorHistory = NOTHING,
) -> Failure:
    """Everything that can be known now of a failure on `device`; `frame` is where it happened.

    `kept` is the allocator's history, and where it was written.
    """
    taken, modules, losses = _living(device)
    stack = _stack(frame)
    if device.type == "cpu":
        memory = psutil.virtual_memory()
        free_bytes, total_bytes = int(memory.available), int(memory.total)
    trace, cause, pools = _read(kept)
    gap = None
    if device.type == "cuda":
        with suppress(Exception):  # the driver may be as short of memory as we are
            gap = measure_gap(device.index, [tensor.bytes for tensor in taken.live])
    sums = _by_category(taken)
    allocated, reserved = _allocated(device)
    facts = OomFacts(
        allocated if allocated is not None else taken.bytes,
        sums,
        device.type,
        asked_bytes or 0,
        total_bytes,
        cause,
        gap,
        tuple((each.f_code.co_filename, each.f_code.co_name) for each in stack),
        losses,
        modules,
    )
    return Failure(
        device=str(device),
        asked_bytes=asked_bytes,
        free_bytes=free_bytes,
        total_bytes=total_bytes,
        allocated_bytes=allocated,
        reserved_bytes=reserved,
        where=_where(stack),
        module=_module(stack, modules),
        cause=cause.text() if cause is not None else "",
        by_category=sums,
        tensors=group(taken.live)[:TOP],
        lines=_lines(trace),
        modules=_modules(trace),
        pools=pools,
        gap=gap,
        advice=advise(facts),
        record=kept.path,
        unsaved=kept.problem,
    )


def _living(device: torch.device) -> tuple[Taken, tuple[nn.Module, ...], tuple[str, ...]]:
    """The tensors on `device`, all modules, and the losses that keep a graph (see `_losses`)."""
    watch = TensorWatch(device)
    try:
        return watch.take(), tuple(CENSUS.modules()), _losses()
    finally:
        watch.close()


def _allocated(device: torch.device) -> tuple[int | None, int | None]:
    if device.type == "cuda":
        return int(torch.cuda.memory_allocated(device)), int(torch.cuda.memory_reserved(device))
    if device.type == "mps" and torch.backends.mps.is_available():
        return int(torch.mps.current_allocated_memory()), int(torch.mps.driver_allocated_memory())
    return None, None


def _by_category(taken: Taken) -> dict[Category, int]:
    sums: dict[Category, int] = {}
    for tensor in taken.live:
        sums[tensor.category] = sums.get(tensor.category, 0) + tensor.bytes
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def _losses() -> tuple[str, ...]:
    """The scalar tensors that keep a graph, as a list of losses does: the names of the first two, if any."""
    scalars = [(t, t.grad_fn) for t in CENSUS.tensors() if t.dim() == 0 and t.grad_fn is not None]
    inner = {following for _, node in scalars for following, _ in node.next_functions}
    ends = [tensor for tensor, node in scalars if node not in inner and node.next_functions]
    if len(ends) < FEW:
        return ()
    named = [held[0].expression for tensor in ends[:2] if (held := who_holds(tensor).holders)]
    return tuple(named + [""] * (len(ends) - len(named)))


def _read(kept: AllocatorHistory) -> tuple[Trace | None, Cause | None, tuple[PoolState, ...]]:
    """What the allocator's recorded events say of the failure."""
    if kept.snapshot is None:
        return None, None, ()
    try:
        trace = trace_of(kept.snapshot)
        config = from_snapshot(trace.metadata["allocator_settings"])
        last_causes = causes(trace, config, most=1)
        uses = pool_use(verify(trace, config).segments)
    except (MemlensError, KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
        return None, None, ()  # no history: the rest is known all the same
    pools = tuple(
        PoolState(use.pool, use.reserved_bytes, use.free_bytes, use.largest_free_bytes) for use in uses
    )
    return trace, last_causes[-1] if last_causes else None, pools


def _lines(trace: Trace | None) -> tuple[tuple[str, int], ...]:
    if trace is None:
        return ()
    uses = lines(trace, trace.breakdown(len(trace.events) - 1))
    return tuple((use.line, use.bytes) for use in uses[:TOP] if use.bytes)


def _modules(trace: Trace | None) -> tuple[tuple[str, int], ...]:
    if trace is None:
        return ()
    uses = module_uses(trace.breakdown(len(trace.events) - 1))
    return tuple((use.module, use.bytes) for use in uses if use.module != UNKNOWN)[:TOP]


def _stack(frame: FrameType | None) -> list[FrameType]:
    frames = []
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


def _where(stack: Sequence[FrameType]) -> str:
    """`train.py:12 in step`: the innermost line of the user's or of a library on top of torch."""
    for frame in stack:
        file = frame.f_code.co_filename
        if whose(file) in (Whose.USER, Whose.LIBRARY):
            return f"{os.path.basename(file)}:{frame.f_lineno} in {frame.f_code.co_name}"
    return ""


def _module(stack: Sequence[FrameType], modules: Sequence[nn.Module]) -> str | None:
    """The path of the innermost module whose method was running; None outside every module."""
    paths = names.Paths(modules)
    for frame in stack:
        owner = locals_of(frame).get("self") if frame.f_code.co_varnames[:1] == ("self",) else None
        if isinstance(owner, nn.Module):
            return paths.of(owner, "").rstrip(".") or type(owner).__name__
    return None


def frame_of(error: BaseException) -> FrameType | None:
    """The innermost frame of an exception's traceback."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame if trace is not None else sys._getframe(1)
