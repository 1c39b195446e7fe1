"""What sums, norms, extrema and their kin allocate beside their results on CUDA.

Three things: a copy in the type of the result where the kernel has none for the pair (`make_reduction` in
ATen/native/ReduceOpsUtils.h; float16 and bfloat16 to float32 is read directly), the staging buffer and the
semaphores of a reduction over several blocks (`reduction_config`), and what composed operators keep.

What is accumulated and how wide a load is, are template arguments of the kernels, read from the symbols of
torch 2.14.1's libtorch_cuda.so: a load takes 8 elements of 16 bits in sum and mean, 2 elements in var and
std, else 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memlens.simulation.rules.common import HALVES, Sizes, nbytes
from memlens.simulation.rules.reductions.launch_config import INT_MAX, Chip, Reduction
from memlens.simulation.rules.registry import scratch

if TYPE_CHECKING:
    from memlens.simulation.core.cuda import Cuda

_SPLIT = "Reduce.cuh splits a long reduction over blocks, which meet in a staging buffer"


def reduction_bytes(
    cuda: Cuda,
    source: Tensor,
    dims: Any,
    out: torch.dtype,
    *,
    value_bytes: int | None = None,
    vector: int = 4,
    casts: bool = True,
) -> Sizes:
    """Scratch of reducing `source` over `dims` (an int, a list, or None and empty for all) into `out`.

    `value_bytes`: what is accumulated, by default an element of the input, 4 for 16-bit types. `casts`: an
    input of another type than `out` is copied first.
    """
    shape, strides, dtype = tuple(source.shape), source.stride(), source.dtype
    copy = 0
    if casts and dtype is not out and not (dtype in HALVES and out is torch.float32):
        copy = source.numel() * out.itemsize
        dtype, strides = out, _dense_strides(source)
    rank = len(shape)
    listed = (dims,) if isinstance(dims, int) else dims
    over = tuple(sorted({d % rank for d in listed})) if listed and rank else tuple(range(rank))
    value = value_bytes or (4 if dtype in HALVES else dtype.itemsize)
    # max_reduce_threads: 512, 256 for complex128
    kernel = Reduction(dtype.itemsize, value, vector, 256 if dtype is torch.complex128 else 512)
    chip = Chip(cuda.gpu.multiprocessors, cuda.gpu.generation.threads_per_sm)
    sizes: Sizes = kernel.scratch(shape, strides, over, chip, out.itemsize)
    if dtype in HALVES and out is dtype and _reaches_beyond_int(shape, strides, dtype.itemsize):
        # the parts of such a reduction meet in a buffer of the accumulator's type (AccumulationBuffer)
        kept = 1
        for number, size in enumerate(shape):
            kept *= 1 if number in over else size
        sizes = (kept * value, *sizes)
    return (copy, *sizes) if copy else sizes


def _reaches_beyond_int(shape: Sizes, strides: Sizes, item_bytes: int) -> bool:
    return 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) * item_bytes > INT_MAX


def _dense_strides(source: Tensor) -> Sizes:
    """The strides of a copy: the source's own where it has no gaps, else contiguous."""
    expected = 1
    for stride, size in sorted(zip(source.stride(), source.shape, strict=True)):
        if size != 1 and stride != expected:
            return tuple(torch.empty(source.shape, device="meta").stride())
        expected *= size
    return source.stride()


def _first(outputs: Tensor | tuple[Tensor, ...]) -> Tensor:
    return outputs if isinstance(outputs, Tensor) else outputs[0]


@scratch("aten::sum", "aten::sum.dim_IntList", "aten::mean", "aten::mean.dim", why=_SPLIT)
def sum_and_mean(cuda: Cuda, self: Tensor, dim: Any = None, *, outputs: Tensor) -> Sizes:
    """Over everything, or over `dim`. Integers and booleans are copied to int64 first."""
    vector = 8 if self.dtype in HALVES and outputs.dtype in (*HALVES, torch.float32) else 4
    return reduction_bytes(cuda, self, dim, outputs.dtype, vector=vector)


@scratch("aten::prod", "aten::prod.dim_int", "aten::nansum", why=_SPLIT)
def prod_and_nansum(cuda: Cuda, self: Tensor, dim: Any = None, *, outputs: Tensor) -> Sizes:
    return reduction_bytes(cuda, self, dim, outputs.dtype)


@scratch(
    "aten::linalg_vector_norm",
    "aten::norm.Scalar",
    "aten::norm.ScalarOpt_dtype",
    "aten::norm.ScalarOpt_dim",
    "aten::norm.ScalarOpt_dim_dtype",
    why="norms reduce in the wider real type (ReduceNormKernel.cu)",
)
def norms(cuda: Cuda, self: Tensor, dim: Any = None, *, outputs: Tensor) -> Sizes:
    value = 8 if outputs.dtype is torch.float64 else 4
    casts = not self.is_complex()
    return reduction_bytes(cuda, self, dim, outputs.dtype, value_bytes=value, casts=casts)


@scratch(
    "aten::var.correction",
    "aten::std.correction",
    "aten::var_mean.correction",
    "aten::std_mean.correction",
    why="Welford's method accumulates mean, sum of squares and two counts (ReduceMomentKernel.cu)",
)
def moments(cuda: Cuda, self: Tensor, dim: Any, outputs: Any) -> Sizes:
    value = 32 if self.dtype is torch.float64 else 16
    return reduction_bytes(cuda, self, dim, _first(outputs).dtype, value_bytes=value, vector=2)


@scratch("aten::amax", "aten::amin", "aten::max", "aten::min", why=_SPLIT)
def extrema(cuda: Cuda, self: Tensor, dim: Any = None, *, outputs: Tensor) -> Sizes:
    """float16 is compared in float32, bfloat16 as it is (ReduceMaxValuesKernel.cu)."""
    item = 4 if self.dtype is torch.float16 else self.dtype.itemsize
    return reduction_bytes(cuda, self, dim, outputs.dtype, value_bytes=item)


@scratch("aten::aminmax", why=_SPLIT)
def both_extrema(cuda: Cuda, self: Tensor, dim: int | None) -> Sizes:
    return reduction_bytes(cuda, self, dim, self.dtype, value_bytes=2 * self.dtype.itemsize)


@scratch("aten::max.dim", "aten::min.dim", "aten::argmax", "aten::argmin", why="a value and its index: 16 B")
def with_index(cuda: Cuda, self: Tensor, dim: int | None, outputs: Any) -> Sizes:
    return reduction_bytes(cuda, self, dim, _first(outputs).dtype, value_bytes=16, casts=False)


@scratch(
    "aten::all", "aten::all.dim", "aten::all.dims", "aten::any", "aten::any.dim", "aten::any.dims", why=_SPLIT
)
def logic(cuda: Cuda, self: Tensor, dim: Any = None) -> Sizes:
    """The accumulator is one bool (ReduceLogicKernel.cu)."""
    return reduction_bytes(cuda, self, dim, torch.bool, value_bytes=1, casts=False)


@scratch("aten::logsumexp", why="exp(x - max) and the maxima, twice (logsumexp_out_impl in ReduceOps.cpp)")
def logsumexp(cuda: Cuda, self: Tensor, outputs: Tensor) -> Sizes:
    maxima = nbytes(outputs)
    return (maxima, maxima, self.numel() * outputs.dtype.itemsize)
