"""Workloads with a convolution over attention scores, and distillation; see `workloads`."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.accuracy.truths import Row
from benchmarks.accuracy.workloads import (
    GPU,
    LATER,
    Repeat,
    by_mode,
    keeping,
    leaf,
    loss,
    workload,
)


def scores_and_kernel(row: Row) -> tuple[Tensor, Tensor, Tensor]:
    """Attention scores (batch, channels, length, length), and a convolution's weight and bias."""
    length, size = row.size("L"), row.size("K")
    scores = leaf(row.size("B"), row.size("C_in"), length, length, dtype=row.dtype)
    shape = (row.size("C_out"), row.size("C_in") // row.size("groups"), size, size)
    return scores, leaf(*shape, dtype=row.dtype), leaf(row.size("C_out"), dtype=row.dtype)


def causal(length: int) -> Tensor:
    return torch.tril(torch.ones(length, length, dtype=torch.bool, device=GPU)).view(1, 1, length, length)


@workload("multi_token_attention")
def multi_token_attention(row: Row) -> Repeat:
    """Softmax of causal scores, convolved."""
    scores, weight, bias = scores_and_kernel(row)
    idle = scores_and_kernel(row)[1:] if row.date < LATER else ()

    def forward() -> Tensor:
        mask = causal(scores.shape[-1])
        least = torch.tensor(-1e9, device=GPU, dtype=scores.dtype)
        zero = torch.tensor(0.0, device=GPU, dtype=scores.dtype)
        masked = scores.masked_fill(~mask, least)
        weights = F.softmax(masked, dim=-1)
        out = F.conv2d(weights, weight, bias, padding=row.size("K") // 2, groups=row.size("groups"))
        return out.masked_fill(~mask, zero)

    return keeping(idle, by_mode(row, forward, grad=torch.randn_like(scores)))


@workload("sparse_multi_token_attention")
def sparse_multi_token_attention(row: Row) -> Repeat:
    """The same with sparsemax, in float32."""
    scores, weight, bias = scores_and_kernel(row)
    idle = scores_and_kernel(row)[1:]

    def forward() -> Tensor:
        length = scores.shape[-1]
        mask = causal(length)
        least = torch.tensor(-1e9, device=GPU)
        zero = torch.tensor(0.0, device=GPU)
        wide = scores.to(torch.float32)
        masked = wide.masked_fill(~mask, least)
        z = masked
        ordered, _ = torch.sort(z, dim=-1, descending=True)
        running = torch.cumsum(ordered, dim=-1)
        ranks = torch.arange(1, length + 1, device=GPU, dtype=z.dtype).view(1, 1, 1, length)
        positive = ordered > -1e8
        condition = (1 + ranks * ordered > running) & positive
        size = torch.sum(condition, dim=-1, keepdim=True)
        safe = torch.max(size, torch.ones_like(size))
        chosen = torch.gather(running, dim=-1, index=safe.long() - 1)
        threshold = (chosen - 1) / safe.to(z.dtype)
        threshold = torch.where(size == 0, torch.full_like(threshold, float("inf")), threshold)
        weights = torch.clamp(z - threshold, min=0)
        w, b = weight.to(torch.float32), bias.to(torch.float32)
        out = F.conv2d(weights, w, b, padding=row.size("K") // 2, groups=row.size("groups"))
        return out.masked_fill(~mask, zero).to(scores.dtype)

    return keeping(idle, by_mode(row, forward, grad=torch.randn_like(scores)))


@workload("distill_cosine_loss")
def distill_cosine(row: Row) -> Repeat:
    """Cross entropy of the student, and the cosine between its and the teacher's logits."""
    wide = row.size("H")
    heads = [
        nn.Linear(inputs, row.vocabulary, bias=False, dtype=row.dtype, device=GPU)
        for inputs in (wide // 2, wide) * 2
    ]
    student, teacher = heads[:2]
    made = torch.rand(row.tokens, wide // 2, device=GPU, dtype=row.dtype)
    x, idle = (made.detach().clone().requires_grad_(True) for _ in range(2))
    other = torch.rand(row.tokens, wide, device=GPU, dtype=row.dtype)
    target = torch.randint(0, row.vocabulary, (row.tokens,), device=GPU)

    def logits() -> tuple[Tensor, Tensor, Tensor]:
        ours = x.view(-1, wide // 2) @ student.weight.t()
        with torch.no_grad():
            theirs = other.view(-1, wide) @ teacher.weight.t()
        mine, others = ours.view(row.tokens, -1).float(), theirs.view(row.tokens, -1).float()
        return mine, others, F.cross_entropy(mine.view(-1, mine.shape[-1]), target.view(-1))

    def distance(mine: Tensor, others: Tensor) -> Tensor:
        mine, others = F.normalize(mine, p=2, dim=-1), F.normalize(others, p=2, dim=-1)
        return (1.0 * (1 - F.cosine_similarity(mine, others, dim=-1))).mean()

    def forward() -> Tensor:
        mine, others, hard = logits()
        mine /= 1.0
        others /= 1.0
        return 0.5 * hard + 0.5 * distance(mine, others)

    return keeping((heads, made, idle), loss(forward))
