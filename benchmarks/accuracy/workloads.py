"""The operators of the table as plain torch, each with what else its program kept on the card.

A workload builds its tensors and returns what is repeated. The programs measured several implementations side
by side: parameters of the one that was not running are made here too, as `idle`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.accuracy.truths import Row

Repeat = Callable[[], Any]
Workload = Callable[[Row], Repeat]
WORKLOADS: dict[str, Workload] = {}
GPU = "cuda"
# From here on the programs make only the implementation that is measured, and the output's gradient anew each
# time; group norm's ran forward and backward under every mode until then (its figures are the same for all).
LATER = "2026-06"
LATEST = "2026-07"  # softmax and its like, too


def workload(*kernels: str) -> Callable[[Workload], Workload]:
    def register(function: Workload) -> Workload:
        for kernel in kernels:
            WORKLOADS[kernel] = function
        return function

    return register


def leaf(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, dtype=dtype, device=GPU, requires_grad=True)


def by_mode(row: Row, forward: Callable[[], Tensor], *, grad: Tensor | None = None) -> Repeat:
    """What is repeated: forward, backward of one forward, or both, keeping the graph.

    `grad`: the gradient of the output, made once; else made anew where forward and backward are repeated.
    """
    if row.mode == "forward":
        return forward
    if row.mode == "backward":
        out = forward()
        given = torch.randn_like(out) if grad is None else grad
        return lambda: out.backward(given, retain_graph=True)

    def both() -> None:
        out = forward()
        out.backward(torch.randn_like(out) if grad is None else grad, retain_graph=True)

    return both


def loss(forward: Callable[[], Tensor], *, keep: bool = False) -> Repeat:
    """A scalar, and its gradient; `keep`: the graph outlives the backward."""

    def both() -> None:
        out = forward()
        out.backward(retain_graph=keep)

    return both


# losses ------------------------------------------------------------------------------------------------


@workload("cross_entropy")
def cross_entropy(row: Row) -> Repeat:
    logits = leaf(row.tokens, row.vocabulary)
    target = torch.randint(row.vocabulary, (row.tokens,), device=GPU)
    return loss(lambda: F.cross_entropy(logits, target))


@workload("kl_div")
def kl_divergence(row: Row) -> Repeat:
    guess = leaf(row.tokens, row.vocabulary).log_softmax(-1)
    target = torch.randn(row.tokens, row.vocabulary, device=GPU).softmax(-1)
    return loss(lambda: F.kl_div(guess, target, reduction="batchmean"), keep=True)


def jensen_shannon(q: Tensor, p: Tensor) -> Tensor:
    """Of log-probabilities, half and half, per row; written as two divergences from the mixture."""
    p, q = p.to(torch.float), q.to(torch.float)
    p, q = p.view(-1, p.size(-1)), q.view(-1, q.size(-1))
    mixture = torch.lerp(torch.exp(q), torch.exp(p), 0.5)

    def divergence(other: Tensor) -> Tensor:
        return F.kl_div(torch.log(mixture), other, reduction="none", log_target=True).sum(dim=-1)

    each = 0.5 * divergence(p) + (1 - 0.5) * divergence(q)
    return (each / q.shape[0]).sum()


@workload("jsd")
def jsd(row: Row) -> Repeat:
    guess = leaf(row.tokens, row.vocabulary).log_softmax(-1)
    target = torch.randn(row.tokens, row.vocabulary, device=GPU).log_softmax(-1)
    return loss(lambda: jensen_shannon(guess, target), keep=True)


@workload("tvd")
def total_variation(row: Row) -> Repeat:
    p = leaf(row.tokens, row.vocabulary).softmax(-1)
    q = torch.randn(row.tokens, row.vocabulary, device=GPU).softmax(-1)
    return loss(lambda: torch.sum(torch.abs(p - q) / 2.0) / p.size(0), keep=True)


def head(row: Row, inputs: int | None = None) -> nn.Linear:
    """The output layer of a language model, without bias."""
    return nn.Linear(
        inputs or row.size("H", "hidden_size"), row.vocabulary, bias=False, dtype=row.dtype, device=GPU
    )


@workload("fused_linear_cross_entropy")
def linear_cross_entropy(row: Row) -> Repeat:
    mine, idle = head(row), head(row)
    x = leaf(row.tokens, mine.in_features, dtype=row.dtype)
    target = torch.randint(row.vocabulary, (row.tokens,), device=GPU)
    return keeping(idle, loss(lambda: F.cross_entropy(mine(x), target)))


@workload("fused_linear_jsd")
def linear_jsd(row: Row) -> Repeat:
    student, teacher = head(row), head(row)
    x = leaf(row.tokens, student.in_features, dtype=row.dtype)
    other = torch.rand(row.tokens, student.in_features, dtype=row.dtype, device=GPU)

    def forward() -> Tensor:
        logits, others = student(x), teacher(other)  # alive until the loss is known
        ours = torch.log_softmax(logits / 1.0, dim=-1)
        theirs = torch.log_softmax(others / 1.0, dim=-1)
        return jensen_shannon(ours, theirs).to(row.dtype)

    return loss(forward)


def keeping(idle: Any, repeat: Repeat) -> Repeat:
    """`repeat`, while `idle` stays alive."""

    def both() -> Any:
        return repeat() if idle is not repeat else None

    return both


# feed-forward blocks --------------------------------------------------------------------------------------


class GatedBlock(nn.Module):
    """down(act(gate(x)) * up(x)), without biases."""

    def __init__(self, width: int, inner: int, activation: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down, self.activation = nn.Linear(inner, width, bias=False), activation

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.activation(self.gate(x)) * self.up(x))


@workload("geglu", "swiglu", "tiled_geglu", "tiled_swiglu")
def gated_block(row: Row) -> Repeat:
    def gelu(x: Tensor) -> Tensor:
        return F.gelu(x, approximate="tanh")

    activation = F.silu if row.size("hidden_act") == "silu" else gelu
    width = row.size("hidden_size")
    x = leaf(row.size("B", "bsz"), row.size("T"), width, dtype=row.dtype)
    block = GatedBlock(width, row.size("intermediate_size"), activation).to(GPU).to(row.dtype)
    return by_mode(row, lambda: block(x))


@workload("megatron_swiglu")
def chunked_swiglu(row: Row) -> Repeat:
    x = leaf(row.size("S"), row.size("B"), 2 * row.size("ffn_local"), dtype=torch.bfloat16)

    def both() -> None:
        x.grad = None
        gate, up = torch.chunk(x, 2, -1)
        out = F.silu(gate) * up
        out.sum().backward()

    return both


# normalisations ----------------------------------------------------------------------------------------


@workload("layer_norm")
def layer_norm(row: Row) -> Repeat:
    width = row.size("N", "hidden_size")
    norm = nn.LayerNorm(width, device=GPU)
    if "M" in row.sizes:
        idle = nn.LayerNorm(width, device=GPU)
        x = leaf(row.size("M"), width, dtype=row.dtype)
        return keeping(idle, by_mode(row, lambda: norm(x), grad=torch.randn_like(x)))
    x = leaf(row.size("bsz"), row.size("T"), width, dtype=row.dtype)
    norm = norm.to(row.dtype)
    return by_mode(row, lambda: norm(x))


@workload("rms_norm")
def rms_norm(row: Row) -> Repeat:
    """As Llama's: in float32, the float32 gain applied last."""
    width = row.size("H")
    gain = nn.Parameter(torch.ones(width, device=GPU))
    idle = nn.Parameter(torch.ones(width, device=GPU))
    x = leaf(row.size("M"), width, dtype=row.dtype)

    def forward() -> Tensor:
        wide = x.to(torch.float32)
        variance = wide.pow(2).mean(-1, keepdim=True)
        wide = wide * torch.rsqrt(variance + 1e-6)
        return gain * wide.to(x.dtype)

    return keeping(idle, by_mode(row, forward, grad=torch.randn_like(x)))


@workload("fused_add_rms_norm")
def add_rms_norm(row: Row) -> Repeat:
    """The sum of two inputs, normalised; sum and result go on."""
    width = row.size("H")
    shape = (row.size("M"), width)
    gain = nn.Parameter(torch.ones(width, device=GPU))
    idle = [torch.ones(width, device=GPU) for _ in range(3)]
    x, residual = leaf(*shape, dtype=row.dtype), leaf(*shape, dtype=row.dtype)
    grads = torch.randn_like(x), torch.randn_like(x)

    def forward() -> tuple[Tensor, Tensor]:
        wide, more = x.to(torch.float32), residual.to(torch.float32)
        wide = wide + more
        more = wide
        variance = wide.pow(2).mean(-1, keepdim=True)
        wide = wide * torch.rsqrt(variance + 1e-6)
        return gain * wide.to(x.dtype), more.to(x.dtype)

    def both() -> None:
        outputs = forward()
        torch.autograd.backward(outputs, grads)

    return keeping(idle, both)


@workload("megatron_rms_norm")
def torch_rms_norm(row: Row) -> Repeat:
    norm = nn.RMSNorm(row.size("H"), eps=1e-6).to(GPU).to(torch.bfloat16)
    x = leaf(row.size("S"), row.size("B"), row.size("H"), dtype=torch.bfloat16)

    def both() -> None:
        out = norm(x)
        out.sum().backward()

    return both


@workload("group_norm")
def group_norm(row: Row) -> Repeat:
    channels = row.size("C", "hidden_size")
    samples = row.size("M", default=0) or row.size("BT") // row.size("H")
    groups = channels // row.size("channels_per_group")
    x = leaf(samples, channels, row.size("H"), dtype=row.dtype)
    norm = nn.GroupNorm(groups, channels).to(GPU, row.dtype)
    return by_mode(row if row.date >= LATER else replace(row, mode="full"), lambda: norm(x))


@workload("poly_norm")
def poly_norm(row: Row) -> Repeat:
    """Three powers of the input, normalised and weighted."""
    x = leaf(row.size("T"), row.size("hidden_size"), dtype=row.dtype)
    weight = nn.Parameter(torch.full((3,), 1 / 3, device=GPU))
    bias = nn.Parameter(torch.tensor(1.0, device=GPU))

    def norm(value: Tensor) -> Tensor:
        return value * torch.rsqrt(value.pow(2).mean(-1, keepdim=True) + 1e-6)

    def forward() -> Tensor:
        wide = x.to(torch.float32)
        cubes, squares, plain = wide**3, wide**2, wide**1
        cubes_n, squares_n, plain_n = norm(cubes), norm(squares), norm(plain)
        out = weight[0] * cubes_n + weight[1] * squares_n + weight[2] * plain_n + bias
        return out.to(x.dtype)

    return by_mode(row, forward)


@workload("dyt")
def dynamic_tanh(row: Row) -> Repeat:
    width = row.size("hidden_size")
    scale = nn.Parameter(torch.ones(1, device=GPU) * 0.5)
    gain = nn.Parameter(torch.ones(width, device=GPU))
    shift = nn.Parameter(torch.zeros(width, device=GPU)) if row.sizes["beta"] else None
    x = leaf(row.tokens, width, dtype=row.dtype)

    def forward() -> Tensor:
        squashed = torch.tanh(x * scale)
        return gain * squashed if shift is None else gain * squashed + shift

    return by_mode(row, forward)


# attention and the like -----------------------------------------------------------------------------------


def angles(position: Tensor, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosine and sine of position times frequency; the product asks cuBLAS."""
    frequency = 1.0 / (10_000.0 ** (torch.arange(0, width, 2, device=GPU).float() / width))
    turns = (frequency[None, :, None].float() @ position[:, None, :].float()).transpose(1, 2)
    both = torch.cat((turns, turns), dim=-1)
    return both.cos().to(dtype), both.sin().to(dtype)


@workload("rope")
def rope(row: Row) -> Repeat:
    """Queries and keys turned by position, halves exchanged."""
    heads = row.size("num_q_heads", "num_attention_heads")
    few = row.size("num_kv_heads", "num_key_value_heads")
    length = row.size("T", "seq_len")
    width = row.size("hidden_size", "H") // heads
    q = leaf(1, length, heads, width, dtype=row.dtype).transpose(1, 2)
    k = leaf(1, length, few, width, dtype=row.dtype).transpose(1, 2)
    grads = torch.randn_like(q), torch.randn_like(k)
    position = torch.arange(length, device=GPU).unsqueeze(0)
    cos, sin = angles(position, width, row.dtype)

    def turned(value: Tensor, c: Tensor, s: Tensor) -> Tensor:
        half = value.shape[-1] // 2
        rotated = torch.cat((-value[..., half:], value[..., :half]), dim=-1)
        return (value * c) + (rotated * s)

    def both() -> None:
        c, s = cos.unsqueeze(1), sin.unsqueeze(1)
        outputs = turned(q, c, s), turned(k, c, s)
        torch.autograd.grad(outputs, (q, k), grads, allow_unused=True, retain_graph=True)

    return keeping(position, both)


class MaskedAttention(nn.Module):
    """Attention in full with a mask, as a neighbourhood is written without a kernel of its own."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.heads, self.scale = heads, (width // heads) ** -0.5

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        query, key, value = self.q(x), self.k(x), self.v(x)
        query = query.view(batch, length, self.heads, -1).transpose(1, 2)
        key = key.view(batch, length, self.heads, -1).transpose(1, 2)
        value = value.view(batch, length, self.heads, -1).transpose(1, 2)
        scores = torch.matmul(query, key.transpose(-2, -1)) * self.scale
        mask = torch.zeros(length, length, device=GPU, dtype=torch.bool)
        scores = scores.masked_fill(~mask, float("-inf"))
        weights = torch.softmax(scores, dim=-1)
        attended = torch.matmul(weights, value)
        attended = attended.transpose(1, 2).contiguous().view(batch, length, width)
        return self.out(attended)


@workload("fused_neighborhood_attention")
def neighbourhood(row: Row) -> Repeat:
    width = row.size("hidden_size")
    mine, idle = (MaskedAttention(width, row.size("num_heads")).to(GPU).to(row.dtype) for _ in range(2))
    x = leaf(row.size("batch_size"), row.size("seq_len"), width, dtype=row.dtype)
    return keeping(idle, by_mode(row, lambda: mine(x), grad=torch.randn_like(x)))


@workload("softmax")
def softmax(row: Row) -> Repeat:
    x = leaf(row.tokens, row.size("hidden_size"), dtype=row.dtype)
    grad = torch.randn_like(x) if row.date < LATEST else None

    def both() -> None:
        out = x.softmax(-1)
        out.backward(torch.ones_like(out), retain_graph=True)

    return keeping(grad, both)


@workload("sparsemax")
def sparsemax(row: Row) -> Repeat:
    x = leaf(row.tokens, row.size("V", "hidden_size"), dtype=row.dtype)

    def forward() -> Tensor:
        ordered, _ = torch.sort(x, dim=-1, descending=True)
        running = torch.cumsum(ordered, dim=-1)
        ranks = torch.arange(1, x.size(-1) + 1, device=GPU, dtype=x.dtype).view(1, -1)
        bound = 1 + ranks * ordered
        support = bound > running
        size = support.sum(dim=-1, keepdim=True).clamp(min=1)
        total = (ordered * support).sum(dim=-1, keepdim=True)
        threshold = (total - 1) / size
        return torch.clamp(x - threshold, min=0)

    return by_mode(row, forward, grad=torch.randn_like(x) if row.date < LATEST else None)
