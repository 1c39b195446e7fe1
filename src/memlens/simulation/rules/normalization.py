"""Layer, RMS, group and batch normalisation, softmax and the losses on CUDA.

Layer and RMS norm (ATen/native/cuda/layer_norm_kernel.cu) keep mean and 1/std per row in float32; the
gradient of the gain takes partial sums only where there are more than 65,536 rows and few columns. Group
norm (group_norm_kernel.cu) takes small float32 tables per (sample, channel). Inputs that are not contiguous
are copied.
"""

from __future__ import annotations

from math import isqrt, prod
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memlens.simulation.rules.common import Sizes, Steps, copy_unless_contiguous, nbytes
from memlens.simulation.rules.reductions.operators import reduction_bytes
from memlens.simulation.rules.registry import composite, operator, scratch

if TYPE_CHECKING:
    from memlens.simulation.core.cuda import Cuda

# LaunchGammaBetaBackwardCUDAKernel: partial sums over blocks of rows above this many rows
MANY_ROWS = 64 * 1024
COLUMNS_PER_BLOCK = 32
ROWS_PER_BLOCK = 32
MOST_BLOCKS = 64 * 1024 // 2


def gain_partials(rows: int, columns: int, item_bytes: int, multiprocessors: int) -> int:
    """Bytes of the partial sums of one gain's or bias' gradient, 0 where one pass does it.

    >>> gain_partials(131_072, 768, 2, 108)  # 1,365 rows of 768 bfloat16
    2096640
    """
    if rows <= MANY_ROWS or columns // COLUMNS_PER_BLOCK >= multiprocessors // 2:
        return 0
    across = -(-columns // COLUMNS_PER_BLOCK)
    down = min(MOST_BLOCKS // across, -(-rows // ROWS_PER_BLOCK))
    return down * columns * item_bytes


@scratch("aten::native_layer_norm", why="inputs that are not contiguous are copied")
def layer_norm(cuda: Cuda, input: Tensor) -> int:
    return copy_unless_contiguous(input)


def _gain_steps(
    cuda: Cuda, grad: Tensor, source: Tensor, shape: list[int], gains: list[Tensor | None]
) -> Steps:
    """Copies of the inputs, and with them each gain's partial sums and their sum over blocks."""
    columns = prod(shape)
    rows = source.numel() // max(columns, 1)
    copies = (copy_unless_contiguous(grad), copy_unless_contiguous(source))
    partial = gain_partials(rows, columns, source.dtype.itemsize, cuda.gpu.multiprocessors)
    wanted = [gain for gain in gains if gain is not None]
    if not partial or not wanted:
        return [copies]
    held = (*copies, *(partial for _ in wanted))
    row = columns * source.dtype.itemsize
    blocks = torch.empty(partial // row, columns, dtype=source.dtype, device="meta")
    return [(*held, row, *reduction_bytes(cuda, blocks, (0,), source.dtype))]


@scratch("aten::native_layer_norm_backward", why="partial sums of gamma's and beta's gradients")
def layer_norm_backward(
    cuda: Cuda, grad_out: Tensor, input: Tensor, normalized_shape: list[int], outputs: Any
) -> Steps:
    return _gain_steps(cuda, grad_out, input, normalized_shape, [outputs[1], outputs[2]])


@scratch("aten::_fused_rms_norm_backward", optional=True, why="partial sums of the gain's gradient")
def rms_norm_backward(
    cuda: Cuda, grad_out: Tensor, input: Tensor, normalized_shape: list[int], outputs: Any
) -> Steps:
    return _gain_steps(cuda, grad_out, input, normalized_shape, [outputs[1]])


def _differentiable_rms_norm_backward(
    grad: Tensor, source: Tensor, shape: list[int], rstd: Tensor, gain: Tensor | None, wanted: list[bool]
) -> tuple[Tensor | None, None, Tensor | None, None]:
    """The gradient as operators with gradients of their own (FunctionsManual.cpp, infinitely_...rms_norm)."""
    over = list(range(source.dim() - len(shape), source.dim()))
    normal = source * rstd
    scaled = grad if gain is None else grad * gain
    inner = (normal * scaled).mean(dim=over, keepdim=True)
    of_source = rstd * (scaled - normal * inner) if wanted[0] else None
    of_gain = (grad * normal).sum_to_size(shape) if wanted[1] else None
    return of_source, None, of_gain, None


class _FusedRmsNorm(torch.autograd.Function):
    """CUDA's kernel and its gradient: keeps the input, the gain and 1/rms per row."""

    @staticmethod
    def forward(ctx: Any, source: Tensor, shape: Any, weight: Tensor | None, eps: float | None) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            out, rstd = torch.ops.aten._fused_rms_norm.default(source, shape, weight, eps)
        ctx.save_for_backward(source, rstd, *(() if weight is None else (weight,)))
        ctx.shape = shape
        ctx.set_materialize_grads(False)
        ctx.mark_non_differentiable(rstd)
        return out, rstd

    @staticmethod
    def backward(ctx: Any, grad: Tensor, _: Any) -> Any:
        source, rstd, *weight = ctx.saved_tensors
        gain = weight[0] if weight else None
        wanted = [ctx.needs_input_grad[0], bool(weight) and ctx.needs_input_grad[2]]
        if torch.is_grad_enabled():
            return _differentiable_rms_norm_backward(grad, source, ctx.shape, rstd, gain, wanted)
        grads = torch.ops.aten._fused_rms_norm_backward.default(grad, source, ctx.shape, rstd, gain, wanted)
        return grads[0], None, grads[1], None


@composite(
    "aten::_fused_rms_norm", optional=True, why="one kernel on CUDA since torch 2.9; elsewhere six operators"
)
def fused_rms_norm(
    cuda: Cuda, input: Tensor, normalized_shape: list[int], weight: Tensor | None, eps: float | None
) -> Any:
    return _FusedRmsNorm.apply(input, normalized_shape, weight, eps)


@operator("aten::_fused_rms_norm", on_device=True, optional=True)
def rms_norm_kernel(cuda: Cuda, input: Tensor, normalized_shape: list[int]) -> tuple[Tensor, Tensor]:
    """The output, and one float32 per row."""
    wide = torch.float64 if input.dtype is torch.float64 else torch.float32
    rows = (*input.shape[: input.dim() - len(normalized_shape)], *(1 for _ in normalized_shape))
    free = cuda.hold(copy_unless_contiguous(input))
    out, rstd = cuda.new(tuple(input.shape), input.dtype), cuda.new(rows, wide)
    free()
    return out, rstd


def _wide(dtype: torch.dtype) -> int:
    return 8 if dtype is torch.float64 else 4


@scratch("aten::native_group_norm", why="scale and shift per (sample, channel) in the wider type")
def group_norm(
    cuda: Cuda, input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int
) -> Sizes:
    """A norm without gain and bias needs no table."""
    copied = 0 if _is_dense(input) else copy_unless_contiguous(input)
    if HxW == 1 or (weight is None and bias is None):
        return (copied,)
    table = N * C * _wide(input.dtype)
    return (copied, table, table)


def _is_dense(tensor: Tensor) -> bool:
    """Contiguous, or channels last: kernels that take both copy neither."""
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return tensor.is_contiguous() or (
        tensor.dim() in formats and tensor.is_contiguous(memory_format=formats[tensor.dim()])
    )


def _closest_factor(number: int) -> int:
    """The divisor of `number` nearest to its square root from below (ClosestFactor)."""
    factor = isqrt(number)
    while factor > 1 and number % factor:
        factor -= 1
    return max(factor, 1)


@scratch("aten::native_group_norm_backward", why="sums and factors per (sample, channel)")
def group_norm_backward(
    cuda: Cuda,
    grad_out: Tensor,
    input: Tensor,
    weight: Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    outputs: Any,
) -> Sizes:
    """ds and db are (N, C), c1 (N, C) with a gain, c2 and c3 (N, G).

    Channels last adds (N, C, H', 2), where H' is the divisor of the area next to its root.
    """
    wide = _wide(input.dtype)
    table, small = N * C * wide, N * group * wide
    copies = tuple(0 if _is_dense(tensor) else copy_unless_contiguous(tensor) for tensor in (grad_out, input))
    rows = 0 if input.is_contiguous() else table * 2 * _closest_factor(HxW)
    factors = (table if weight is not None else 0, small, small) if outputs[0] is not None else ()
    return (*copies, table, table, rows, *factors)


@scratch(
    "aten::_softmax",
    "aten::_log_softmax",
    why="an input that is not contiguous is copied (SoftMax.cu, host_softmax)",
)
def softmax(cuda: Cuda, self: Tensor) -> int:
    return copy_unless_contiguous(self)


@scratch("aten::_softmax_backward_data", why="gradient times output is a tensor (SoftMax.cu)")
def softmax_backward(cuda: Cuda, grad_output: Tensor, output: Tensor) -> Sizes:
    """softmax_backward_cuda_out multiplies first, then sums rows; the output is made contiguous."""
    return nbytes(grad_output), copy_unless_contiguous(output)


@scratch("aten::_log_softmax_backward_data", why="gradient and output are made contiguous (SoftMax.cu)")
def log_softmax_backward(cuda: Cuda, grad_output: Tensor, output: Tensor) -> Sizes:
    return copy_unless_contiguous(grad_output), copy_unless_contiguous(output)


@scratch("aten::nll_loss_forward", "aten::nll_loss2d_forward", why="input and target are made contiguous")
def nll_loss(cuda: Cuda, self: Tensor, target: Tensor, weight: Tensor | None) -> Sizes:
    tensors = (self, target) if weight is None else (self, target, weight)
    return tuple(copy_unless_contiguous(tensor) for tensor in tensors)
