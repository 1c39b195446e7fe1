"""Operators whose output's size depends on data: the size where the data is known, else a stated bound.

`@fallback` rules are asked only after torch's own meta kernel has given up. A bound is the largest size there
can be: everything kept. Where there is none, the operator is refused by name and line.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memlens.errors import UnsupportedOperator
from memlens.model import Assumption, Category
from memlens.simulation.rules.registry import fallback, operator

if TYPE_CHECKING:
    from memlens.simulation.core.session import Simulation

_aten = torch.ops.aten


def _new(sim: Simulation, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    out = torch.empty(shape, dtype=dtype, device="meta")
    sim.adopt(out, name)
    return out


def _bound(sim: Simulation, name: str, count: int, nbytes: int) -> int:
    """Say that all `count` are taken to be kept; `nbytes` is what that may be too much."""
    where = sim.site(name).where or "an unknown line"
    sim.assume(
        Assumption(
            f"{name} at {where} is taken to keep all {count:,} elements",
            "how many it keeps depends on data, which is not computed; fewer need less",
            -nbytes,
            0,
        )
    )
    return count


def _refuse(sim: Simulation, name: str, why: str, hint: str) -> UnsupportedOperator:
    where = sim.site(name).where
    return UnsupportedOperator(f"{name}{f' at {where}' if where else ''}: {why}", hint=hint)


def _nonzeros(sim: Simulation, name: str, mask: Tensor) -> int:
    """How many elements are not zero: counted where the data is known, else all of them, said."""
    real = sim.values.known_value(mask)
    if real is not None:
        return int(torch.count_nonzero(real))
    return _bound(sim, name, mask.numel(), mask.numel() * mask.dim() * 8)


@fallback("aten::nonzero")
def nonzero(sim: Simulation, args: Any, kwargs: Any) -> Tensor:
    """One row of indices per element that is not zero (ATen/native/cuda/Nonzero.cu)."""
    return _new(sim, "nonzero", (_nonzeros(sim, "nonzero", args[0]), args[0].dim()), torch.int64)


@fallback("aten::masked_select")
def masked_select(sim: Simulation, args: Any, kwargs: Any) -> Tensor:
    """The selected elements; CUDA indexes with the mask, so its indices live meanwhile."""
    source, mask = args
    shape = torch.broadcast_shapes(source.shape, mask.shape)
    count = math.prod(shape)
    if mask.shape == shape:
        count = _nonzeros(sim, "masked_select", mask)
    else:
        _bound(sim, "masked_select", count, count * source.element_size())
    _while_indexing(sim, "masked_select", count, len(shape))
    return _new(sim, "masked_select", (count,), source.dtype)


def _while_indexing(sim: Simulation, name: str, count: int, dims: int) -> None:
    sim.ledger.scratch(count * dims * 8, Category.TEMPORARY, sim.site(name), sim.stream)()


@fallback("aten::index.Tensor")
def index(sim: Simulation, args: Any, kwargs: Any) -> Tensor:
    """Boolean masks become the indices of their true elements (`expandTensors`), one tensor per dimension."""
    source, indices = args
    counts: list[int] = []
    expanded: list[Tensor | None] = []
    for item in indices:
        if item is None or item.dtype not in (torch.bool, torch.uint8):
            expanded.append(None if item is None else item if item.is_meta else item.to("meta"))
            continue
        count = _nonzeros(sim, "index", item)
        counts.append(count * item.dim())
        expanded += [torch.empty(count, dtype=torch.int64, device="meta")] * item.dim()
    found = _aten.index.Tensor(source, expanded)
    _while_indexing(sim, "index", sum(counts), 1)
    return _new(sim, "index", tuple(found.shape), source.dtype)


@fallback("aten::_unique2")
def unique2(sim: Simulation, args: Any, kwargs: Any) -> tuple[Tensor, ...]:
    """At most every element once; CUDA sorts, and the inverse has the input's shape."""
    source = args[0]
    inverse, counts = (_flag(args, kwargs, *flag) for flag in ((2, "return_inverse"), (3, "return_counts")))
    return _unique(sim, "_unique2", source, source.numel(), inverse, counts, source.shape)


@fallback("aten::unique_consecutive")
def unique_consecutive(sim: Simulation, args: Any, kwargs: Any) -> tuple[Tensor, ...]:
    """At most every element, or every slice along `dim`."""
    source = args[0]
    inverse, counts = (_flag(args, kwargs, *flag) for flag in ((1, "return_inverse"), (2, "return_counts")))
    dim = args[3] if len(args) > 3 else kwargs.get("dim")
    if dim is None:
        return _unique(sim, "unique_consecutive", source, source.numel(), inverse, counts, source.shape)
    return _unique_slices(sim, "unique_consecutive", source, dim, inverse, counts)


@fallback("aten::unique_dim", "aten::unique_dim_consecutive")
def unique_dim(sim: Simulation, args: Any, kwargs: Any) -> tuple[Tensor, ...]:
    """At most every slice along `dim`."""
    inverse = _flag(args, kwargs, 3, "return_inverse")
    return _unique_slices(
        sim, "unique_dim", args[0], args[1], inverse, _flag(args, kwargs, 4, "return_counts")
    )


def _flag(args: Any, kwargs: Any, position: int, name: str) -> bool:
    return bool(args[position] if len(args) > position else kwargs.get(name, False))


def _unique(
    sim: Simulation, name: str, source: Tensor, count: int, inverse: bool, counts: bool, shape: Any
) -> tuple[Tensor, ...]:
    real = sim.values.known_value(source)
    if real is not None:
        kept = len(real.unique() if name == "_unique2" else real.unique_consecutive())
    else:
        kept = _bound(sim, name, count, count * (source.element_size() + 8 * counts))
    empty = (0,)
    return (
        _new(sim, name, (kept,), source.dtype),
        _new(sim, name, tuple(shape) if inverse else empty, torch.int64),
        _new(sim, name, (kept,) if counts else empty, torch.int64),
    )


def _unique_slices(
    sim: Simulation, name: str, source: Tensor, dim: int, inverse: bool, counts: bool
) -> tuple[Tensor, ...]:
    length = source.size(dim)
    _bound(sim, name, length, source.numel() * source.element_size())
    return (
        _new(sim, name, tuple(source.shape), source.dtype),
        _new(sim, name, (length,) if inverse else (0,), torch.int64),
        _new(sim, name, (length,) if counts else (0,), torch.int64),
    )


@fallback("aten::bincount")
def bincount(sim: Simulation, args: Any, kwargs: Any) -> Tensor:
    """As long as the largest value plus one: known with the data, or by `minlength`, else not at all."""
    source = args[0]
    weights = args[1] if len(args) > 1 else kwargs.get("weights")
    least = args[2] if len(args) > 2 else kwargs.get("minlength", 0)
    real = sim.values.known_value(source)
    if real is not None:
        least = max(least, int(real.max()) + 1 if real.numel() else 0)
    elif least:
        where = sim.site("bincount").where or "an unknown line"
        sim.assume(
            Assumption(f"bincount at {where} is taken to have {least:,} bins", "as many as its minlength")
        )
    else:
        raise _refuse(
            sim,
            "bincount",
            "its length is the largest value in its input, which is not computed",
            "give it minlength= with the number of bins",
        )
    dtype = torch.int64 if weights is None else torch.float64
    if weights is not None and weights.dtype is torch.float32:
        dtype = torch.float32
    return _new(sim, "bincount", (least,), dtype)


@operator("aten::repeat_interleave.Tensor")
def repeat_interleave(sim: Simulation, args: Any, kwargs: Any) -> Tensor:
    """The indices to repeat: as many as the repeats add up to, or as the caller says."""
    repeats = args[0]
    size = kwargs.get("output_size")
    real = sim.values.known_value(repeats)
    if not repeats.is_meta:
        return _aten.repeat_interleave.Tensor(repeats, output_size=size)
    if size is None and real is not None:
        size = int(real.sum())
    if size is None:
        raise _refuse(
            sim,
            "repeat_interleave",
            "its length is the sum of the repeats, which is not computed",
            "give it output_size= with the length, or the repeats from the host",
        )
    return _new(sim, "repeat_interleave", (size,), repeats.dtype)


@fallback("torchvision::nms")
def nms(sim: Simulation, args: Any, kwargs: Any) -> Tensor:
    """Which boxes stay: at most all."""
    boxes = args[0]
    return _new(sim, "nms", (_bound(sim, "nms", boxes.size(0), boxes.size(0) * 8),), torch.int64)


@operator("aten::allclose")
def allclose(sim: Simulation, args: Any, kwargs: Any) -> bool:
    """Compared where the data is known, else the stand-ins are."""
    left, right = (sim.values.read(t) if t.is_meta else t for t in args[:2])
    return torch.allclose(left, right, *args[2:], **kwargs)
