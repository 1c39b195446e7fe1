"""A linear layer with a 4-bit weight as bitsandbytes 0.41 ran it under Lightning, in plain torch.

Lightning quantises from float16 whatever the model's dtype (`_NF4Linear.quantize`, fabric's bitsandbytes
plugin), so each product unpacks the weight in float16 and then casts it. `MatMul4Bit` of that version kept
its input, as an attribute of the context: it lives as long as the graph. Only sizes matter: nothing is
computed.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BLOCK = 64  # weights that share a scale
NESTED = 256  # scales that share one of their own, where those are 8-bit ("dq")


class FourBit(nn.Module):
    """Two weights a byte, a scale for each 64 of them."""

    def __init__(self, width: int, out: int, bias: bool, nested: bool) -> None:
        super().__init__()
        count = width * out
        self.shape, self.nested = (out, width), nested
        self.packed = nn.Parameter(torch.empty(count // 2, dtype=torch.uint8), requires_grad=False)
        scales = -(-count // BLOCK)
        self.register_buffer("scales", torch.empty(scales, dtype=torch.uint8 if nested else torch.float32))
        if nested:
            self.register_buffer("nested_scales", torch.empty(-(-scales // NESTED), dtype=torch.float32))
        self.bias = nn.Parameter(torch.empty(out, dtype=torch.bfloat16)) if bias else None

    def unpack(self, dtype: torch.dtype) -> Tensor:
        """The whole weight: its scales in float32 first where they are 8-bit."""
        device = self.packed.device
        scales = torch.empty(self.scales.shape, device=device) if self.nested else self.scales
        weight = torch.empty(self.shape, dtype=torch.float16, device=device)
        del scales
        return weight.to(dtype)

    def forward(self, x: Tensor) -> Tensor:
        return Product.apply(x, self, self.bias)


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: FourBit, bias: Tensor | None) -> Tensor:
        ctx.layer, ctx.dtype = layer, x.dtype
        if ctx.needs_input_grad[0]:
            ctx.kept = x
        return F.linear(x, layer.unpack(x.dtype), bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return torch.matmul(grad, ctx.layer.unpack(grad.dtype)), None, None
