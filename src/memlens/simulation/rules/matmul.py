"""Matrix products: cuBLAS reads rows or columns in order; what is laid out otherwise is copied first.

ATen/native/cuda/cuBlasCommonArgs.h (`prepare_matrix_for_cublas`) and Blas.cpp
(`prepare_batch_matrix_for_cublas`). A lazy conjugate is resolved where cuBLAS' own flag cannot say it: here
always, an upper bound. The bias of `addmm` goes into the result or into cublasLt's epilogue: no copy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from memlens.simulation.rules.registry import scratch

if TYPE_CHECKING:
    from memlens.simulation.core.session import Simulation


def copy_of_matrix(matrix: Tensor) -> int:
    """Bytes of the copy that cuBLAS needs of a matrix, 0 where it reads it as it is."""
    (rows, columns), (down, across) = matrix.shape, matrix.stride()
    readable = (down == 1 and across >= max(1, rows)) or (across == 1 and down >= max(1, columns))
    if not readable and rows > 1 and columns > 1:
        return matrix.numel() * matrix.dtype.itemsize
    return matrix.numel() * matrix.dtype.itemsize if matrix.is_conj() else 0


def copy_of_batch(batch: Tensor) -> int:
    """The same for a batch of matrices; the batch may have any stride."""
    (_, rows, columns), (_, down, across) = batch.shape, batch.stride()
    readable = (down == 1 and across >= max(1, rows)) or (across == 1 and down >= max(1, columns))
    if not readable and not (batch.is_contiguous() and down and across):
        return batch.numel() * batch.dtype.itemsize
    return batch.numel() * batch.dtype.itemsize if batch.is_conj() else 0


@scratch("aten::mm", why="operands whose strides cuBLAS cannot read are copied")
def mm(sim: Simulation, args: Any, kwargs: Any, out: Tensor) -> tuple[int, ...]:
    return copy_of_matrix(args[0]), copy_of_matrix(args[1])


@scratch("aten::addmm", "aten::_addmm_activation", why="as mm; the bias is in the result or in the epilogue")
def addmm(sim: Simulation, args: Any, kwargs: Any, out: Tensor) -> tuple[int, ...]:
    return copy_of_matrix(args[1]), copy_of_matrix(args[2])


@scratch("aten::bmm", why="operands whose strides cuBLAS cannot read are copied")
def bmm(sim: Simulation, args: Any, kwargs: Any, out: Tensor) -> tuple[int, ...]:
    return copy_of_batch(args[0]), copy_of_batch(args[1])


@scratch("aten::baddbmm", why="as bmm; the result starts as a copy of the summand")
def baddbmm(sim: Simulation, args: Any, kwargs: Any, out: Tensor) -> tuple[int, ...]:
    return copy_of_batch(args[1]), copy_of_batch(args[2])
