"""Grouped matrix products, as mixtures of experts use them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memlens.simulation.rules.registry import operator

if TYPE_CHECKING:
    from memlens.simulation.core.session import Simulation

_ALIGNED_BYTES = 16  # rows of the output begin at multiples of it (ATen/native/GroupedMMUtils.h)


def output_shape(a: Tensor, b: Tensor, groups: int) -> tuple[int, ...]:
    """The shape of a product whose 2-D sides are cut into groups along their shared or first dimension."""
    rows, columns = a.shape[-2], b.shape[-1]
    if a.dim() == b.dim():  # two 2-D sides share the grouped dimension; two 3-D sides are a batch
        return (groups if a.dim() == 2 else a.shape[0], rows, columns)
    return (rows, columns)


@operator("aten::_grouped_mm", optional=True)
def grouped_mm(sim: Simulation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """Any floating dtype: where CUDA has no grouped kernel (it has one for bfloat16) it loops over `mm`.

    The meta kernel refuses all but bfloat16. Which rows belong to which group is data and changes no size.
    """
    a, b = args[0], args[1]
    offsets = args[2] if len(args) > 2 else kwargs.get("offs")
    dtype = kwargs.get("out_dtype") or (args[4] if len(args) > 4 else None) or a.dtype
    *outer, rows, columns = output_shape(a, b, offsets.shape[0] if offsets is not None else 1)
    aligned = _ALIGNED_BYTES // dtype.itemsize
    stride = (columns + aligned - 1) // aligned * aligned
    strides = (rows * stride, stride, 1) if outer else (stride, 1)
    out = torch.empty_strided((*outer, rows, columns), strides, dtype=dtype, device="meta")
    sim.adopt(out, "_grouped_mm")
    sim.blas_workspace("_grouped_mm")
    return out
