"""Attention at the Python boundary: what never arrives at `aten::scaled_dot_product_attention`.

Jagged tensors bring their own attention, which asks a real card for kernels; `CausalBias` is a tensor that is
no tensor, and asks which kernels there are before it chooses one itself.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional
from torch.utils._python_dispatch import _disable_current_modes

from memlens.errors import UnsupportedOperator
from memlens.simulation.rules.attention import choice
from memlens.simulation.rules.attention.choice import Call, Kernel
from memlens.simulation.torch_api.device import handles

if TYPE_CHECKING:
    from memlens.simulation.core.session import Simulation
    from memlens.simulation.torch_api.device import DeviceMode, Function

_BIAS = "torch.nn.attention.bias"


@handles(functional.scaled_dot_product_attention)
def _attention(mode: DeviceMode, func: Function, /, *args: object, **kwargs: object) -> object:
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor) and value.is_nested:
            raise UnsupportedOperator(
                "scaled_dot_product_attention of nested tensors is not simulated: a card chooses its kernel",
                hint="estimate it with padded tensors (torch.nested.to_padded_tensor), which need no less",
            )
    return func(*args, **kwargs)


def can_use(sim: Simulation, kernel: Kernel) -> Any:
    """`torch.backends.cuda.can_use_..._attention` for the simulated card."""

    def answer(params: Any, debug: bool = False) -> bool:
        with torch._C.DisableTorchFunction():
            tensors = (params.query, params.key, params.value, params.attn_mask)
            call = Call(
                sim.gpu.compute_capability, *tensors, params.dropout, params.is_causal, params.enable_gqa
            )
            return sim.is_cuda(params.query) and choice.can_use(kernel, call)

    return answer


def replacements(sim: Simulation) -> dict[str, Any]:
    """Dotted names and their stand-ins; those of `CausalBias` only where somebody has imported it."""
    kernels = {
        "can_use_flash_attention": can_use(sim, Kernel.FLASH),
        "can_use_efficient_attention": can_use(sim, Kernel.EFFICIENT),
    }
    table = {f"torch.backends.cuda.{name}": function for name, function in kernels.items()}
    table |= {
        "torch.backends.cuda.is_flash_attention_available": lambda: True,
        "torch.backends.cuda.can_use_cudnn_attention": can_use(sim, Kernel.CUDNN),
    }
    if _BIAS in sys.modules:
        table |= {f"{_BIAS}.{name}": function for name, function in kernels.items()}
        table[f"{_BIAS}.CausalBias.__new__"] = staticmethod(_new)
    return table


def _new(cls: type[torch.Tensor], *args: Any, **kwargs: Any) -> torch.Tensor:
    """An empty tensor of torch's own: one that a mode has made cannot become another class."""
    with _disable_current_modes():
        return torch.Tensor.__new__(cls)
