"""Grouped matrix products, as mixtures of experts use them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from memlens.simulation.rules.common import round_up
from memlens.simulation.rules.registry import operator

if TYPE_CHECKING:
    from memlens.simulation.core.cuda import Cuda

_ALIGNED_BYTES = 16  # rows of the output begin at multiples of it (ATen/native/GroupedMMUtils.h)


def output_shape(a: Tensor, b: Tensor, groups: int) -> tuple[int, ...]:
    """The shape of a product whose 2-D sides are cut into groups along their shared or first dimension."""
    rows, columns = a.shape[-2], b.shape[-1]
    if a.dim() == b.dim():  # two 2-D sides share the grouped dimension; two 3-D sides are a batch
        return (groups if a.dim() == 2 else a.shape[0], rows, columns)
    return (rows, columns)


@operator("aten::_grouped_mm", optional=True)
def grouped_mm(
    cuda: Cuda, self: Tensor, mat2: Tensor, offs: Tensor | None, out_dtype: torch.dtype | None
) -> Tensor:
    """Any floating dtype: where CUDA has no grouped kernel (it has one for bfloat16) it loops over `mm`.

    The meta kernel refuses all but bfloat16. Which rows belong to which group is data and changes no size.
    """
    dtype = out_dtype or self.dtype
    *outer, rows, columns = output_shape(self, mat2, 1 if offs is None else offs.shape[0])
    stride = round_up(columns, _ALIGNED_BYTES // dtype.itemsize)
    strides = (rows * stride, stride, 1) if outer else (stride, 1)
    out = torch.empty_strided((*outer, rows, columns), strides, dtype=dtype, device="meta")
    cuda.adopt(out)
    cuda.blas_workspace()
    return out
