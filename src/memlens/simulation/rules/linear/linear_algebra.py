"""Factorisations and Fourier transforms: copies that the libraries work in, and their workspaces.

cuSOLVER and MAGMA work in place in a column-major copy (ATen/native/cuda/linalg/BatchLinearAlgebra.cpp);
cuFFT's plans ask for a work area (ATen/native/cuda/SpectralOps.cpp, CuFFTPlanCache.h). Both say how much only
on a card. Expected here: one more copy of the matrices, for a transform one of the result; between nothing
and four times (twice) that, said as an assumption.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from memlens.simulation.rules.common import copy_unless_contiguous, nbytes
from memlens.simulation.rules.registry import fallback, operator, scratch
from memlens.simulation.rules.uncertain_workspace import take

if TYPE_CHECKING:
    from memlens.simulation.core.cuda import Cuda

# syevd asks for 2 n**2 and some n, gesvd for 3 n and up, geqrf for n times a block of columns
MOST_MATRICES = 4
MOST_RESULTS = 2  # Bluestein's method for large prime factors pads to twice the length


def _say_solver(calls: int) -> tuple[str, str]:
    return (
        f"the workspaces of {calls:,} matrix factorisations are taken to be one copy of the matrices",
        "cuSOLVER says only on a card how much it needs; between nothing and four copies",
    )


def _say_fourier(calls: int) -> tuple[str, str]:
    return (
        f"the work areas of {calls:,} Fourier transforms are taken to be as large as the result",
        "cuFFT says only on a card how much a plan needs; between nothing and twice the result",
    )


@scratch(
    "aten::_linalg_svd",
    "aten::_linalg_eigh",
    "aten::linalg_qr",
    "aten::linalg_cholesky_ex",
    "aten::linalg_lu_factor_ex",
    "aten::_linalg_solve_ex",
    "aten::linalg_inv_ex",
    "aten::_linalg_det",
    "aten::linalg_eig",
    "aten::linalg_ldl_factor_ex",
    "aten::linalg_householder_product",
    "aten::_linalg_slogdet",
    "aten::linalg_ldl_solve",
    "aten::ormqr",
    why="a column-major copy of the matrices, and the library's workspace",
)
def factorisation(cuda: Cuda, matrices: Tensor, /) -> int:
    size = nbytes(matrices)
    take(cuda, "cusolver", "factorisation", (0, size, MOST_MATRICES * size), _say_solver, size)
    return 0


@fallback("aten::geqrf")
def geqrf(cuda: Cuda, self: Tensor) -> tuple[Tensor, Tensor]:
    """Both factors in one column-major tensor, and the reflectors' factors (BatchLinearAlgebra.cpp)."""
    *batch, rows, columns = self.shape
    packed = cuda.new((*batch, columns, rows), self.dtype).mT
    factors = cuda.new((*batch, min(rows, columns)), self.dtype)
    size = nbytes(self)
    take(cuda, "cusolver", "factorisation", (0, size, MOST_MATRICES * size), _say_solver)
    return packed, factors


@operator("aten::linalg_lstsq", on_device=True)
def least_squares(cuda: Cuda, self: Tensor, b: Tensor, driver: str | None) -> tuple[Tensor, ...]:
    """There is no meta kernel. CUDA solves with gels in max(m, n) rows, of which the solution is a view.

    Residuals only of more equations than unknowns; no rank, no singular values (ATen/native/
    BatchLinearAlgebra.cpp, linalg_lstsq_out_info).
    """
    if driver not in (None, "gels"):
        raise RuntimeError("torch.linalg.lstsq: `driver` other than `gels` is not supported on CUDA")
    *batch, rows, unknowns = self.shape
    vector = b.dim() == 1 or (self.dim() - 1 == b.dim() and b.shape == self.shape[:-1])
    sides = 1 if vector else b.shape[-1]
    batch = list(torch.broadcast_shapes(batch, b.shape[: -1 if vector else -2]))
    real = self.dtype.to_real()
    solved = cuda.new((*batch, sides, max(rows, unknowns)), self.dtype).mT[..., :unknowns, :]
    residuals = cuda.new((*batch, sides) if rows > unknowns else (0,), real)
    rank, singular_values = cuda.new((0,), torch.int64), cuda.new((0,), real)
    factorisation(cuda, self)
    return solved.squeeze(-1) if vector else solved, residuals, rank, singular_values


@scratch(
    "aten::_fft_c2c", "aten::_fft_r2c", "aten::_fft_c2r", why="cuFFT's work area; c2r destroys its input"
)
def fourier(cuda: Cuda, self: Tensor, outputs: Tensor) -> int:
    size = nbytes(outputs)
    destroyed = self.is_complex() and not outputs.is_complex()
    copied = nbytes(self) if destroyed else copy_unless_contiguous(self)
    take(cuda, "cufft", "fourier transform", (0, size, MOST_RESULTS * size), _say_fourier, copied)
    return 0
