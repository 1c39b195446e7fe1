"""A GPT in the manner of lit-gpt (Lightning, autumn 2023), with its adapters, in plain torch.

One fused projection for queries, keys and values; LoRA on queries and values, padded with zeros to the
projection's width; LLaMA-Adapter v1 (ten learned positions that every layer from the third on attends to,
gated) and v2 (also a bias and a scale behind each linear layer, and the norms); 4-bit linear layers.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.accuracy.four_bit import FourBit

PROMPT, FIRST = 10, 2  # learned positions, and the first layer that has them (lit_gpt/adapter.py)


class Shape(NamedTuple):
    """A model by the figures of its public config."""

    width: int
    layers: int
    heads: int
    groups: int  # of keys and values
    inner: int
    vocabulary: int  # as padded by the program
    rotary: float  # share of each head that is rotated
    gated: bool  # SwiGLU and RMSNorm, as in Llama; otherwise GELU and LayerNorm
    parallel: bool  # attention and MLP read the same input
    bias: bool
    shared: bool = False  # one norm for attention and MLP
    head_bias: bool = False

    @property
    def head(self) -> int:
        return self.width // self.heads


class Recipe(NamedTuple):
    """What is trained, and how the linear layers are kept."""

    rank: int = 0  # of LoRA
    adapter: int = 0  # version of LLaMA-Adapter
    quantization: str = "None"  # bnb.nf4, bnb.nf4-dq

    def linear(self, width: int, out: int, bias: bool) -> nn.Module:
        if self.quantization == "None":
            made: nn.Module = nn.Linear(width, out, bias=bias)
        else:
            made = FourBit(width, out, bias, self.quantization.endswith("dq"))
        return Scaled(made, out) if self.adapter == 2 else made

    def trains(self, name: str) -> bool:
        parts = ["lora_"] if self.rank else []
        parts += ["adapter_"] if self.adapter else []
        parts += ["norm_1", "norm_2", "ln_f"] if self.adapter == 2 else []
        return any(part in name for part in parts)


class Scaled(nn.Module):
    """A linear layer with a learned bias and scale behind it."""

    def __init__(self, linear: nn.Module, out: int) -> None:
        super().__init__()
        self.linear = linear
        self.adapter_bias, self.adapter_scale = (nn.Parameter(torch.zeros(out)) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        return self.adapter_scale * (self.linear(x) + self.adapter_bias)


class RMSNorm(nn.Module):
    """In float32 inside, as the program does it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        y = x.float()
        y = y * torch.rsqrt(torch.mean(y * y, dim=-1, keepdim=True) + 1e-5)
        return (self.weight * y).to(x.dtype)


class Projection(nn.Module):
    """Queries, keys and values at once, with LoRA on the first and the last."""

    def __init__(self, shape: Shape, recipe: Recipe) -> None:
        super().__init__()
        self.width, self.out = shape.width, (shape.heads + 2 * shape.groups) * shape.head
        self.linear = recipe.linear(shape.width, self.out, shape.bias)
        self.rank, self.values = recipe.rank, shape.groups * shape.head
        if self.rank:
            self.dropout = nn.Dropout(0.05)
            self.lora_a = nn.Parameter(torch.empty(2 * self.rank, shape.width))
            self.lora_b = nn.Parameter(torch.empty(shape.width + self.values, self.rank))

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        if not self.rank:
            return y
        low = F.linear(self.dropout(x), self.lora_a)
        q, v = low.split(self.rank, dim=-1)
        up_q, up_v = self.lora_b.split([self.width, self.values])
        both = torch.cat([F.linear(q, up_q), F.linear(v, up_v)], dim=-1)
        padded = x.new_zeros(*x.shape[:-1], self.out)
        index = torch.arange(self.out, device=x.device)
        kept = torch.cat([index[: self.width], index[-self.values :]])
        padded = padded.view(-1, self.out).index_copy(1, kept, both.reshape(-1, both.shape[-1]))
        return y + padded.view(*x.shape[:-1], self.out) * 2.0


class Attention(nn.Module):
    def __init__(self, shape: Shape, recipe: Recipe, layer: int) -> None:
        super().__init__()
        self.shape = shape
        self.qkv = Projection(shape, recipe)
        self.proj = recipe.linear(shape.width, shape.width, shape.bias)
        self.learned = recipe.adapter > 0 and layer >= FIRST
        if self.learned:
            self.adapter_positions = nn.Parameter(torch.empty(PROMPT, shape.width))
            self.adapter_gate = nn.Parameter(torch.zeros(1, 1, shape.heads, 1))
        self.cache: tuple[Tensor, Tensor] | None = None

    def split(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values, (batch, heads or groups, 1 or heads a group, tokens, head)."""
        b, t, _ = x.shape
        each = self.shape.heads // self.shape.groups
        parts = self.qkv(x).view(b, t, self.shape.groups, each + 2, self.shape.head).permute(0, 2, 3, 1, 4)
        q, k, v = parts.split((each, 1, 1), dim=2)
        return q, k, v

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        b, t, c = x.shape
        shape, head = self.shape, self.shape.head
        q, k, v = self.split(x)
        if shape.groups != shape.heads:
            k, v = (z.expand(*q.shape) for z in (k, v))
        q, k, v = (z.reshape(b, -1, t, head) for z in (q, k, v))
        size = int(shape.rotary * head)
        q = torch.cat((rotate(q[..., :size], cos, sin), q[..., size:]), dim=-1)
        k = torch.cat((rotate(k[..., :size], cos, sin), k[..., size:]), dim=-1)
        mask = None
        if self.cache is not None:
            at = torch.arange(t, device=x.device)
            k, v = (kept.index_copy_(2, at, new) for kept, new in zip(self.cache, (k, v), strict=True))
            mask = torch.ones(1, 1, t, k.shape[2], dtype=torch.bool, device=x.device)
        y = self.attend(q, k, v, mask)
        if self.learned:
            y = y + self.adapter_gate * self.attend_to_learned(q)
        return self.proj(y.reshape(b, t, c))

    def attend_to_learned(self, q: Tensor) -> Tensor:
        shape = self.shape
        _, k, v = self.split(self.adapter_positions.reshape(1, PROMPT, shape.width))
        if shape.groups not in (1, shape.heads):
            k, v = (z.repeat_interleave(shape.heads // shape.groups, dim=2) for z in (k, v))
        k, v = (z.reshape(1, -1, PROMPT, shape.head) for z in (k, v))
        mask = torch.ones(q.shape[2], PROMPT, dtype=torch.bool, device=q.device)
        return self.attend(q, k, v, mask)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Tensor:
        """(batch, tokens, heads, head)."""
        scale = 1 / math.sqrt(self.shape.head)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, scale=scale)
        return y.transpose(1, 2)


class Block(nn.Module):
    def __init__(self, shape: Shape, recipe: Recipe, layer: int) -> None:
        super().__init__()
        self.shape = shape
        norm = RMSNorm if shape.gated else nn.LayerNorm
        self.norm_1 = norm(shape.width)
        self.norm_2 = None if shape.shared else norm(shape.width)
        self.attn = Attention(shape, recipe, layer)
        self.fc_1 = recipe.linear(shape.width, shape.inner, shape.bias)
        self.fc_2 = recipe.linear(shape.width, shape.inner, shape.bias) if shape.gated else None
        self.down = recipe.linear(shape.inner, shape.width, shape.bias)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        normed = self.norm_1(x)
        attended = self.attn(normed, cos, sin)
        if self.shape.parallel:
            return self.mlp(normed if self.norm_2 is None else self.norm_2(x)) + attended + x
        x = attended + x
        return self.mlp(self.norm_2(x)) + x

    def mlp(self, x: Tensor) -> Tensor:
        if self.fc_2 is None:
            return self.down(F.gelu(self.fc_1(x)))
        return self.down(F.silu(self.fc_1(x)) * self.fc_2(x))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.size(-1) // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return ((x * cos) + (turned * sin)).type_as(x)


class GPT(nn.Module):
    def __init__(self, shape: Shape, recipe: Recipe) -> None:
        super().__init__()
        self.shape = shape
        self.lm_head = recipe.linear(shape.width, shape.vocabulary, shape.head_bias)
        self.wte = nn.Embedding(shape.vocabulary, shape.width)
        self.h = nn.ModuleList(Block(shape, recipe, layer) for layer in range(shape.layers))
        self.ln_f = (RMSNorm if shape.gated else nn.LayerNorm)(shape.width)

    def make_caches(self, tokens: int) -> None:
        """Keys and values of as many tokens as a generation has, for every head."""
        for block in self.h:
            size = (1, self.shape.heads, tokens, self.shape.head)
            block.attn.cache = tuple(torch.zeros(size, dtype=torch.bfloat16, device="cuda") for _ in range(2))

    def forward(self, ids: Tensor, chunk: int = 0) -> Any:
        size = int(self.shape.rotary * self.shape.head)
        cos = torch.empty(ids.shape[1], size, device=ids.device, dtype=torch.bfloat16)
        sin = torch.empty_like(cos)
        x = self.wte(ids)
        for block in self.h:
            x = block(x, cos, sin)
        x = self.ln_f(x)
        return [self.lm_head(part) for part in x.split(chunk, dim=1)] if chunk else self.lm_head(x)
