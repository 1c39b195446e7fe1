"""Matrix products: cuBLAS reads rows or columns in order; what is laid out otherwise is copied first.

ATen/native/cuda/cuBlasCommonArgs.h (`prepare_matrix_for_cublas`) and Blas.cpp
(`prepare_batch_matrix_for_cublas`). A lazy conjugate is resolved where cuBLAS' own flag cannot say it: here
always, an upper bound. The bias of `addmm` goes into the result or into cublasLt's epilogue: no copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from memlens.simulation.rules.common import Sizes, nbytes
from memlens.simulation.rules.registry import operator, scratch

if TYPE_CHECKING:
    from memlens.simulation.core.cuda import Cuda


def copy_of_matrix(matrix: Tensor) -> int:
    """Bytes of the copy that cuBLAS needs of a matrix, 0 where it reads it as it is."""
    (rows, columns), (down, across) = matrix.shape, matrix.stride()
    readable = (down == 1 and across >= max(1, rows)) or (across == 1 and down >= max(1, columns))
    if not readable and rows > 1 and columns > 1:
        return nbytes(matrix)
    return nbytes(matrix) if matrix.is_conj() else 0


def copy_of_batch(batch: Tensor) -> int:
    """The same for a batch of matrices; the batch may have any stride."""
    (_, rows, columns), (_, down, across) = batch.shape, batch.stride()
    readable = (down == 1 and across >= max(1, rows)) or (across == 1 and down >= max(1, columns))
    if not readable and not (batch.is_contiguous() and down and across):
        return nbytes(batch)
    return nbytes(batch) if batch.is_conj() else 0


@scratch("aten::mm", why="operands whose strides cuBLAS cannot read are copied")
def mm(cuda: Cuda, self: Tensor, mat2: Tensor) -> Sizes:
    return copy_of_matrix(self), copy_of_matrix(mat2)


@scratch("aten::addmm", "aten::_addmm_activation", why="as mm; the bias is in the result or in the epilogue")
def addmm(cuda: Cuda, mat1: Tensor, mat2: Tensor) -> Sizes:
    return copy_of_matrix(mat1), copy_of_matrix(mat2)


@scratch("aten::bmm", why="operands whose strides cuBLAS cannot read are copied")
def bmm(cuda: Cuda, self: Tensor, mat2: Tensor) -> Sizes:
    return copy_of_batch(self), copy_of_batch(mat2)


@scratch("aten::baddbmm", why="as bmm; the result starts as a copy of the summand")
def baddbmm(cuda: Cuda, batch1: Tensor, batch2: Tensor) -> Sizes:
    return copy_of_batch(batch1), copy_of_batch(batch2)


@operator("aten::baddbmm.dtype", on_device=True, optional=True)
def baddbmm_of_dtype(cuda: Cuda, batch1: Tensor, batch2: Tensor, out_dtype: torch.dtype) -> Tensor:
    """torch's meta kernel takes the dtype for a factor."""
    cuda.blas_workspace()
    out = cuda.new((*batch1.shape[:2], batch2.shape[2]), out_dtype)
    cuda.scratch(copy_of_batch(batch1), copy_of_batch(batch2))
    return out
