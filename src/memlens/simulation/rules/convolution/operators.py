"""Convolutions on CUDA: layouts, the copies they need, and cuDNN's workspaces.

ATen/native/Convolution.cpp and cudnn/ConvShared.cpp: channels last as soon as the input or the weight is;
both are then copied where they are laid out otherwise. Backward runs the input's gradient and the weight's
one after the other, each with a workspace of its own; the bias' gradient is a sum. How large a workspace is,
`workspace.workspace` says, with a range that becomes one assumption of the whole simulation.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memlens.simulation.core.device_checks import check_convolution
from memlens.simulation.core.ledger import HOST
from memlens.simulation.rules.common import nbytes
from memlens.simulation.rules.convolution import workspace
from memlens.simulation.rules.convolution.call import Convolution, Direction, Workspace
from memlens.simulation.rules.reductions.operators import reduction_bytes
from memlens.simulation.rules.registry import fallback, operator
from memlens.simulation.rules.uncertain_workspace import take

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memlens.simulation.core.cuda import Cuda

_aten = torch.ops.aten
_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
NAMES = {torch.float64: "float64", torch.float32: "float32", torch.bfloat16: "bfloat16"}


def channels_last(*tensors: Tensor) -> torch.memory_format:
    """The layout that cuDNN is given: channels last if any of the tensors is, and none is float64."""
    if tensors[0].dtype is not torch.float64 and tensors[0].dim() in _LAST:
        last = _LAST[tensors[0].dim()]
        if any(torch._prims_common.suggest_memory_format(tensor) is last for tensor in tensors):
            return last
    return torch.contiguous_format


@lru_cache(maxsize=1024)
def output_shape(
    x: torch.Size,
    w: torch.Size,
    stride: tuple[int, ...],
    padding: tuple[int, ...],
    dilation: tuple[int, ...],
    transposed: bool,
    output_padding: tuple[int, ...],
    groups: int,
) -> list[int]:
    """The shape of the result, as torch's own meta kernel says."""
    inputs = (torch.empty(x, device="meta"), torch.empty(w, device="meta"))
    out = _aten.convolution.default(
        *inputs, None, stride, padding, dilation, transposed, output_padding, groups
    )
    return list(out.shape)


class _Call:
    """One convolution of the program: its tensors, and how it runs."""

    def __init__(
        self,
        cuda: Cuda,
        x: Tensor,
        w: Tensor,
        y_shape: Sequence[int],
        stride: Sequence[int],
        dilation: Sequence[int],
        transposed: bool,
        groups: int,
    ) -> None:
        self.cuda, self.x, self.w, self.y_shape = cuda, x, w, tuple(y_shape)
        self.stride, self.dilation, self.transposed, self.groups = stride, dilation, transposed, groups
        self.layout = channels_last(x, w)

    def workspace(self, direction: Direction) -> Workspace:
        cudnn, x = torch.backends.cudnn, self.x
        if not cudnn.enabled or x.dtype.is_complex or not x.dtype.is_floating_point:
            return Workspace(0, 0, 0, "not cuDNN")
        return _workspace(
            Convolution(
                self.cuda.gpu.compute_capability,
                direction,
                NAMES.get(x.dtype, "float16"),
                self.layout is not torch.contiguous_format,
                _allows_tf32(),
                bool(cudnn.benchmark),
                tuple(x.shape),
                tuple(self.w.shape),
                self.y_shape,
                self._each(self.stride),
                self._each(self.dilation),
                self.groups,
                self.transposed,
            )
        )

    def _each(self, values: Sequence[int]) -> tuple[int, ...]:
        return tuple(values) * (self.x.dim() - 2) if len(values) == 1 else tuple(values)

    def copy_bytes(self, tensor: Tensor) -> int:
        """Bytes of the copy in the layout that cuDNN is given, 0 where the tensor has it."""
        return 0 if tensor.is_contiguous(memory_format=self.layout) else nbytes(tensor)

    def run(self, direction: Direction) -> None:
        """Take the workspace and give it back."""
        workspace = self.workspace(direction)
        sizes = (workspace.low_bytes, workspace.expected_bytes, workspace.high_bytes)
        take(self.cuda, "cudnn", self.cuda.operator, sizes, _say, kind=direction)


def _allows_tf32() -> bool:
    """Whether float32 convolutions may use tensor cores: by the newer setting where it is given."""
    setting = getattr(getattr(torch.backends.cudnn, "conv", None), "fp32_precision", None)
    if setting in ("ieee", "tf32"):
        return setting == "tf32"
    try:
        return bool(torch.backends.cudnn.allow_tf32)
    except RuntimeError:
        return True  # the two settings were mixed: the larger workspace


_workspace = lru_cache(maxsize=2048)(workspace.workspace)


@operator("aten::convolution")
def convolution(
    cuda: Cuda,
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: list[int],
    padding: list[int],
    dilation: list[int],
    transposed: bool,
    output_padding: list[int],
    groups: int,
) -> Tensor:
    ledger = cuda.sim.ledger
    is_alike = input.dtype is weight.dtype and (bias is None or bias.dtype is input.dtype)
    if ledger.host_bytes or not (is_alike and input.is_meta and weight.is_meta):
        check_convolution(ledger, input, weight, bias)
    how = (stride, padding, dilation, transposed, output_padding, groups)
    if not cuda.has(input):
        return _elsewhere(cuda, input, weight, bias, how)
    described = [tuple(value) if isinstance(value, list) else value for value in how]
    y_shape = output_shape(input.shape, weight.shape, *described)
    call = _Call(cuda, input, weight, y_shape, stride, dilation, transposed, groups)
    free_input = cuda.hold(call.copy_bytes(input))
    out = cuda.new(call.y_shape, input.dtype, call.layout)
    free_weight = cuda.hold(call.copy_bytes(weight))
    call.run("forward")
    free_input()
    free_weight()
    return out


@fallback("aten::cudnn_convolution")
def cudnn_convolution(
    cuda: Cuda, self: Tensor, weight: Tensor, padding: list[int], stride: list[int], dilation: list[int],
    groups: int,
) -> Tensor:  # fmt: skip
    """A convolution without bias, asked for by name (cudnn/ConvShared.cpp)."""
    nothing = [0] * (self.dim() - 2)
    return convolution(cuda, self, weight, None, stride, padding, dilation, False, nothing, groups)


@fallback("aten::cudnn_convolution_transpose")
def cudnn_convolution_transpose(
    cuda: Cuda, self: Tensor, weight: Tensor, padding: list[int], output_padding: list[int],
    stride: list[int], dilation: list[int], groups: int,
) -> Tensor:  # fmt: skip
    """Its transpose."""
    return convolution(cuda, self, weight, None, stride, padding, dilation, True, output_padding, groups)


def _elsewhere(
    cuda: Cuda, input: Tensor, weight: Tensor, bias: Tensor | None, how: tuple[Any, ...]
) -> Tensor:
    """On the host: torch's own kernel; a result that is too large to be real is noted there."""
    out: Tensor = _aten.convolution.default(input, weight, bias, *how)
    if out.is_meta and cuda.sim.is_host(input):
        cuda.sim.ledger.adopt(out.untyped_storage(), HOST)
    return out


@operator("aten::convolution_backward", on_device=True)
def convolution_backward(
    cuda: Cuda,
    grad_output: Tensor,
    input: Tensor,
    weight: Tensor,
    stride: list[int],
    dilation: list[int],
    transposed: bool,
    groups: int,
    output_mask: list[bool],
) -> tuple[Tensor | None, ...]:
    """The gradients of the input, the weight and the bias."""
    needs_x, needs_w, needs_bias = output_mask
    call = _Call(cuda, input, weight, grad_output.shape, stride, dilation, transposed, groups)
    frees = [cuda.hold(call.copy_bytes(tensor)) for tensor in (input, weight, grad_output)]
    grad_x = _gradient(call, input, "backward_data") if needs_x else None
    grad_w = _gradient(call, weight, "backward_weight") if needs_w else None
    for free in frees:
        free()
    grad_bias = None
    if needs_bias:
        grad_bias = cuda.new((grad_output.shape[1],), grad_output.dtype)
        over = [dim for dim in range(grad_output.dim()) if dim != 1]
        cuda.scratch(*reduction_bytes(cuda, grad_output, over, grad_output.dtype))
    return grad_x, grad_w, grad_bias


def _gradient(call: _Call, like: Tensor, direction: Direction) -> Tensor:
    out = call.cuda.new(tuple(like.shape), like.dtype, call.layout)
    call.run(direction)
    return out


def _say(calls: int) -> tuple[str, str]:
    return (
        f"the workspaces of {calls:,} convolution calls follow rules, not cuDNN's own word",
        "cuDNN chooses a kernel, and with it the workspace, by card, version and free memory",
    )
