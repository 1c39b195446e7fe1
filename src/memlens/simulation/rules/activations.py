"""Gradients of activations that are one kernel on CUDA and several operators elsewhere.

Of all operators with a kernel for CUDA and a composite form for other devices (asked of torch 2.14.1's
dispatcher) only `silu_backward`, `mish_backward` and `_fused_rms_norm` (see `normalization`) differ so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from memlens.simulation.rules.registry import composite, operator

if TYPE_CHECKING:
    from memlens.simulation.core.cuda import Cuda

_aten = torch.ops.aten
_WHY = "one kernel on CUDA (ActivationSiluKernel.cu, ActivationMishKernel.cu)"


@composite("aten::silu_backward", why=_WHY)
def silu_backward(cuda: Cuda, grad_output: Tensor, self: Tensor) -> Tensor:
    return _below_autograd(_aten.silu_backward.default, grad_output, self)


@composite("aten::mish_backward", why=_WHY)
def mish_backward(cuda: Cuda, grad_output: Tensor, self: Tensor) -> Tensor:
    return _below_autograd(_aten.mish_backward.default, grad_output, self)


def _below_autograd(func: Any, grad: Tensor, source: Tensor) -> Tensor:
    """One kernel, unless its own gradient is wanted: then the operators that it stands for."""
    if torch.is_grad_enabled() and (grad.requires_grad or source.requires_grad):
        composed: Tensor = func.decompose(grad, source)
        return composed
    with torch._C._AutoDispatchBelowAutograd():
        fused: Tensor = func(grad, source)
        return fused


@operator("aten::silu_backward", "aten::mish_backward", on_device=True)
def one_kernel(cuda: Cuda, self: Tensor) -> Tensor:
    """A gradient laid out as the input."""
    return cuda.new_like(self)
