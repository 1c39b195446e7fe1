"""Factorisations and Fourier transforms: copies that the libraries work in, and their workspaces.

cuSOLVER and MAGMA work in place in a column-major copy (ATen/native/cuda/linalg/BatchLinearAlgebra.cpp);
cuFFT's plans ask for a work area (ATen/native/cuda/SpectralOps.cpp, CuFFTPlanCache.h). Both say how much only
on a card. Expected here: one more copy of the matrices, for a transform one of the result; between nothing
and four times (twice) that, said as an assumption.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from memlens.simulation.rules.indexing import copy_unless_contiguous
from memlens.simulation.rules.ranges import take
from memlens.simulation.rules.registry import scratch

if TYPE_CHECKING:
    from memlens.simulation.session import Simulation

MOST_MATRICES = (
    4  # syevd asks for 2 n**2 and some n, gesvd for 3 n and up, geqrf for n times a block of columns
)
MOST_RESULTS = 2  # Bluestein's method for large prime factors pads to twice the length


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.dtype.itemsize


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
    "aten::linalg_lstsq",
    "aten::linalg_eig",
    "aten::linalg_ldl_factor_ex",
    "aten::linalg_householder_product",
    optional=True,
    why="a column-major copy of the matrices, and the library's workspace",
)
def factorisation(sim: Simulation, args: Any, kwargs: Any, out: Any) -> int:
    size = _bytes(args[0])
    take(sim, "cusolver", "factorisation", size, MOST_MATRICES * size, _say_solver, size)
    return 0


@scratch(
    "aten::_fft_c2c", "aten::_fft_r2c", "aten::_fft_c2r", why="cuFFT's work area; c2r destroys its input"
)
def fourier(sim: Simulation, args: Any, kwargs: Any, out: Tensor) -> int:
    size = _bytes(out)
    destroyed = args[0].is_complex() and not out.is_complex()
    copied = _bytes(args[0]) if destroyed else copy_unless_contiguous(args[0])
    take(sim, "cufft", "fourier transform", size, MOST_RESULTS * size, _say_fourier, copied)
    return 0
