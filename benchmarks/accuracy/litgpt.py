"""LoRA fine-tuning and inference with bfloat16 weights on an A100 against recorded figures:
`python -m benchmarks.accuracy.litgpt`.

A GPT in the manner of the program that was measured: one fused projection for queries, keys and values, LoRA
(r = 8) on queries and values that is padded with zeros to the projection's width, the loss in chunks of 128
rows, AdamW on the adapters. Sizes are those of the models' public configs.
"""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import memlens
from benchmarks.accuracy.truths import folder

GB = 10**9
CHUNK = 128


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


SHAPES = {
    "phi-1.5": Shape(2048, 24, 32, 32, 8192, 51200, 0.5, False, True, True),
    "StableLM Alpha": Shape(4096, 16, 32, 32, 16384, 50688, 0.25, False, True, True),
    ("Llama 2", "7 B"): Shape(4096, 32, 32, 32, 11008, 32000, 1.0, True, False, False),
    ("Llama 2", "13 B"): Shape(5120, 40, 40, 40, 13824, 32000, 1.0, True, False, False),
}


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

    def __init__(self, shape: Shape, rank: int) -> None:
        super().__init__()
        head = shape.width // shape.heads
        self.width, self.out = shape.width, (shape.heads + 2 * shape.groups) * head
        self.linear = nn.Linear(shape.width, self.out, bias=shape.bias)
        self.rank, self.values = rank, shape.groups * head
        if rank:
            self.dropout = nn.Dropout(0.05)
            self.lora_a = nn.Parameter(torch.empty(2 * rank, shape.width))
            self.lora_b = nn.Parameter(torch.empty(shape.width + self.values, rank))

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


class Block(nn.Module):
    def __init__(self, shape: Shape, rank: int) -> None:
        super().__init__()
        self.shape = shape
        norm = RMSNorm if shape.gated else nn.LayerNorm
        self.norm_1, self.norm_2 = norm(shape.width), norm(shape.width)
        self.qkv = Projection(shape, rank)
        self.proj = nn.Linear(shape.width, shape.width, bias=shape.bias)
        self.fc_1 = nn.Linear(shape.width, shape.inner, bias=shape.bias)
        self.fc_2 = nn.Linear(shape.width, shape.inner, bias=shape.bias) if shape.gated else None
        self.down = nn.Linear(shape.inner, shape.width, bias=shape.bias)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        normed = self.norm_1(x)
        attended = self.attend(normed, cos, sin)
        if self.shape.parallel:
            return self.mlp(self.norm_2(x)) + attended + x
        x = attended + x
        return self.mlp(self.norm_2(x)) + x

    def mlp(self, x: Tensor) -> Tensor:
        if self.fc_2 is None:
            return self.down(F.gelu(self.fc_1(x)))
        return self.down(F.silu(self.fc_1(x)) * self.fc_2(x))

    def attend(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        b, t, c = x.shape
        heads, head = self.shape.heads, c // self.shape.heads
        q, k, v = self.qkv(x).view(b, t, heads, 3, head).permute(0, 2, 3, 1, 4).split((1, 1, 1), dim=2)
        q, k, v = (z.reshape(b, -1, t, head) for z in (q, k, v))
        size = int(self.shape.rotary * head)
        q = torch.cat((rotate(q[..., :size], cos, sin), q[..., size:]), dim=-1)
        k = torch.cat((rotate(k[..., :size], cos, sin), k[..., size:]), dim=-1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=1 / math.sqrt(head))
        return self.proj(y.transpose(1, 2).reshape(b, t, c))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = x.size(-1) // 2
    turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
    return ((x * cos) + (turned * sin)).type_as(x)


class GPT(nn.Module):
    def __init__(self, shape: Shape, rank: int) -> None:
        super().__init__()
        self.shape = shape
        self.wte = nn.Embedding(shape.vocabulary, shape.width)
        self.h = nn.ModuleList(Block(shape, rank) for _ in range(shape.layers))
        self.ln_f = (RMSNorm if shape.gated else nn.LayerNorm)(shape.width)
        self.lm_head = nn.Linear(shape.width, shape.vocabulary, bias=shape.bias and shape.width == 2048)

    def forward(self, ids: Tensor, chunk: int = 0) -> Any:
        size = int(self.shape.rotary * (self.shape.width // self.shape.heads))
        cos = torch.empty(ids.shape[1], size, device=ids.device, dtype=torch.bfloat16)
        sin = torch.empty_like(cos)
        x = self.wte(ids)
        for block in self.h:
            x = block(x, cos, sin)
        x = self.ln_f(x)
        return [self.lm_head(part) for part in x.split(chunk, dim=1)] if chunk else self.lm_head(x)


def chunked_loss(logits: list[Tensor], targets: Tensor) -> Tensor:
    """Cross-entropy of chunks of rows, averaged over all tokens."""
    parts = [chunk.reshape(-1, chunk.size(-1)) for chunk in logits]
    wanted = [part.reshape(-1) for part in targets.split(logits[0].size(1), dim=1)]
    losses = [
        F.cross_entropy(p, w, ignore_index=-1, reduction="none") for p, w in zip(parts, wanted, strict=True)
    ]
    return torch.cat(losses).sum() / max(1, targets.numel())


def shape_of(row: dict[str, str]) -> Shape | None:
    return SHAPES.get(row["model"]) or SHAPES.get((row["model"], row["size"]))


def predicted_gb(row: dict[str, str], steps: int = 2) -> float | None:
    """max_memory_allocated in GB; None for rows this benchmark has no program for."""
    shape = shape_of(row)
    if shape is None or row["quantization"] != "None" or row["max_allocated_gb"] in ("OOM", ""):
        return None
    length = int(row["longest_sequence"])
    if row["task"] == "Finetuning with LoRA on 1 GPU":
        return finetuned_gb(shape, int(row["micro_batch"]), length, steps)
    return inferred_gb(shape) if row["task"] == "Single-GPU Inference" else None


def inferred_gb(shape: Shape, tokens: int = 64) -> float:
    """A short prompt, whose length the table does not state; the weights are nearly everything."""
    with memlens.simulate(gpu="A100 40GB"), torch.inference_mode():
        model = GPT(shape, 0).to(torch.bfloat16).to("cuda").eval()
        model(torch.randint(0, 1000, (1, tokens), device="cuda"))
        return torch.cuda.max_memory_allocated() / GB


def finetuned_gb(shape: Shape, batch: int, length: int, steps: int) -> float:
    with memlens.simulate(gpu="A100 40GB"):
        model = GPT(shape, 8).to(torch.bfloat16).to("cuda")
        for name, parameter in model.named_parameters():
            parameter.requires_grad_("lora_" in name)
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-4)
        for _ in range(steps):
            ids = torch.randint(0, 1000, (batch, length), device="cuda")
            targets = torch.randint(0, 1000, (batch, length), device="cuda")
            # Lightning's Fabric hands outputs back in the default dtype (HalfPrecision.convert_output)
            logits = [part.float() for part in model(ids, CHUNK)]
            logits[-1] = logits[-1][..., :-1, :]
            loss = chunked_loss(logits, targets[..., 1:])
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        return torch.cuda.max_memory_allocated() / GB


def rows(truth: Path) -> Iterator[tuple[dict[str, str], float]]:
    """Each row that is compared, with its signed error."""
    with (truth / "litgpt_a100.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            mine = predicted_gb(row)
            if mine is not None:
                yield row, mine / float(row["max_allocated_gb"]) - 1


def main() -> None:
    truth = folder()
    if truth is None:
        sys.exit("no recorded figures beside the checkout; name their folder in MEMLENS_SHARED")
    found = []
    for row, error in rows(truth):
        found.append(error)
        what = f"{row['micro_batch']} x {row['longest_sequence']}" if row["micro_batch"] else "inference"
        name = f"{row['model']} {row['size']}, {what}"
        print(f"{name}: {100 * error:+.2f} %", flush=True)
    print(f"median {100 * median(map(abs, found)):.2f} % of {len(found)} rows")


if __name__ == "__main__":
    main()
