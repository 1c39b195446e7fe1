"""Factorisations and Fourier transforms: copies that the libraries work in, and their workspaces.

cuSOLVER and MAGMA work in place in a column-major copy (ATen/native/cuda/linalg/BatchLinearAlgebra.cpp);
cuFFT's plans ask for a work area (ATen/native/cuda/SpectralOps.cpp, CuFFTPlanCache.h). Both say how much only
on a card. Expected here: one more copy of the matrices, for a transform one of the result; between nothing
and four times (twice) that, said as an assumption.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memlens.simulation.rules.indexing import copy_unless_contiguous
from memlens.simulation.rules.registry import operator, scratch
from memlens.simulation.rules.uncertain_workspace import take

if TYPE_CHECKING:
    from memlens.simulation.core.session import Simulation

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


@operator("aten::linalg_lstsq", on_device=True)
def least_squares(sim: Simulation, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, ...]:
    """There is no meta kernel. CUDA solves with gels in max(m, n) rows, of which the solution is a view.

    Residuals only of more equations than unknowns; no rank, no singular values (ATen/native/
    BatchLinearAlgebra.cpp, linalg_lstsq_out_info).
    """
    a, b = args[:2]
    driver = args[3] if len(args) > 3 else kwargs.get("driver")
    if driver not in (None, "gels"):
        raise RuntimeError("torch.linalg.lstsq: `driver` other than `gels` is not supported on CUDA")
    *batch, rows, unknowns = a.shape
    vector = b.dim() == 1 or (a.dim() - 1 == b.dim() and b.shape == a.shape[:-1])
    sides = 1 if vector else b.shape[-1]
    batch = list(torch.broadcast_shapes(batch, b.shape[: -1 if vector else -2]))
    real = a.dtype.to_real()

    def made(*shape: int, dtype: torch.dtype = a.dtype) -> Tensor:
        out = torch.empty(shape, dtype=dtype, device="meta")
        sim.adopt(out, "linalg_lstsq")
        return out

    solved = made(*batch, sides, max(rows, unknowns)).mT[..., :unknowns, :]
    residuals = made(*batch, sides, dtype=real) if rows > unknowns else made(0, dtype=real)
    out = (
        solved.squeeze(-1) if vector else solved,
        residuals,
        made(0, dtype=torch.int64),
        made(0, dtype=real),
    )
    factorisation(sim, args, kwargs, out)
    return out


@scratch(
    "aten::_fft_c2c", "aten::_fft_r2c", "aten::_fft_c2r", why="cuFFT's work area; c2r destroys its input"
)
def fourier(sim: Simulation, args: Any, kwargs: Any, out: Tensor) -> int:
    size = _bytes(out)
    destroyed = args[0].is_complex() and not out.is_complex()
    copied = _bytes(args[0]) if destroyed else copy_unless_contiguous(args[0])
    take(sim, "cufft", "fourier transform", size, MOST_RESULTS * size, _say_fourier, copied)
    return 0
