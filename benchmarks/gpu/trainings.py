"""Fifteen standard trainings, run on the card and on its simulation: the same code, two answers.

Each is two steps, written as anybody writes them. The simulation is what `memlens predict` runs too.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention
from torch.utils.checkpoint import checkpoint

import memlens
from memlens.devices import Gpu

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> nn.Module:
    """A network of the examples folder."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made: nn.Module = getattr(module, name)()
    return made


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.heads, self.causal = heads, causal
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Language(nn.Module):
    """A decoder with tied word vectors."""

    def __init__(
        self, width: int = 512, layers: int = 8, words: int = 32_000, recompute: bool = False
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.places = nn.Embedding(1024, width)
        self.layers = nn.ModuleList(Layer(width, width // 64, True) for _ in range(layers))
        self.norm, self.recompute = nn.LayerNorm(width), recompute

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.words(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.recompute else layer(x)
        return self.norm(x) @ self.words.weight.t()


class Vision(nn.Module):
    """Patches of 16, twelve layers."""

    def __init__(self, width: int = 384, layers: int = 12) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.layers = nn.Sequential(*(Layer(width, width // 64, False) for _ in range(layers)))
        self.head = nn.Linear(width, 1000)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.layers(self.patches(images).flatten(2).transpose(1, 2)).mean(1))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.inner = nn.Embedding(10_000, 256), nn.LSTM(256, 512, 2, batch_first=True)
        self.head = nn.Linear(512, 1000)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.inner(self.words(tokens))[0][:, -1])


class UNet(nn.Module):
    """Down twice and up twice, with the maps of the way down joined in."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.down = nn.ModuleList([self.pair(3, width), self.pair(width, 2 * width)])
        self.bottom = self.pair(2 * width, 4 * width)
        self.up = nn.ModuleList([self.pair(6 * width, 2 * width), self.pair(3 * width, width)])
        self.head = nn.Conv2d(width, 10, 1)

    @staticmethod
    def pair(channels: int, filters: int) -> nn.Module:
        steps = [(channels, filters), (filters, filters)]
        layers = [(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(inplace=True)) for a, b in steps]
        return nn.Sequential(*(layer for three in layers for layer in three))

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for block in self.down:
            x = block(x)
            kept.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = self.bottom(x)
        for block in self.up:
            x = block(torch.cat([nn.functional.interpolate(x, scale_factor=2), kept.pop()], 1))
        return self.head(x)


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(), nn.Dropout(), nn.Linear(4096, 1000))


def images(batch: int, size: int = 224) -> Callable[[], tuple[Tensor, Tensor]]:
    """Images with a class each, made on the host."""
    return lambda: (torch.randn(batch, 3, size, size), torch.randint(1000, (batch,)))


def tokens(batch: int, length: int, words: int) -> Callable[[], tuple[Tensor, Tensor]]:
    """Words, and the word that follows each."""
    return lambda: (torch.randint(words, (batch, length)), torch.randint(words, (batch, length)))


@dataclass(frozen=True)
class Training:
    """One row: what is trained, on what, how."""

    name: str
    model: Callable[[], nn.Module]
    batch: Callable[[], tuple[Tensor, Tensor]]
    optimizer: str = "AdamW"
    autocast: torch.dtype | None = None
    dtype: torch.dtype | None = None
    channels_last: bool = False
    arguments: tuple[tuple[str, Any], ...] = ()


TRAININGS: tuple[Training, ...] = (
    Training("perceptron, SGD", perceptron, lambda: (torch.randn(512, 1024), torch.randint(1000, (512,))),
             "SGD"),
    Training("vgg16, SGD with momentum", lambda: example("vgg16"), images(16), "SGD",
             arguments=(("momentum", 0.9),)),
    Training("resnet50", lambda: example("resnet50"), images(32)),
    Training("resnet50, channels last, bf16", lambda: example("resnet50"), images(32),
             autocast=torch.bfloat16, channels_last=True),
    Training("resnet50, fp16", lambda: example("resnet50"), images(32), "SGD", autocast=torch.float16),
    Training("vision transformer", Vision, images(16)),
    Training("vision transformer, bf16", Vision, images(16), autocast=torch.bfloat16),
    Training("language model", Language, tokens(4, 512, 32_000)),
    Training("language model, autocast bf16", Language, tokens(4, 512, 32_000), autocast=torch.bfloat16),
    Training("language model, in bf16", Language, tokens(4, 512, 32_000), dtype=torch.bfloat16),
    Training("language model, checkpoints", lambda: Language(recompute=True), tokens(4, 512, 32_000)),
    Training("language model, fused Adam", Language, tokens(4, 512, 32_000), "Adam",
             arguments=(("fused", True),)),
    Training("language model, Adam one by one", Language, tokens(4, 512, 32_000), "Adam",
             arguments=(("foreach", False),)),
    Training("lstm", Recurrent, lambda: (torch.randint(10_000, (32, 128)), torch.randint(1000, (32,)))),
    Training("unet", UNet, lambda: (torch.randn(4, 3, 256, 256), torch.randint(10, (4, 256, 256)))),
)  # fmt: skip


def two_steps(training: Training) -> None:
    """What runs on the card, and on its simulation."""
    model = training.model().to("cuda", training.dtype)
    if training.channels_last:
        model = model.to(memory_format=torch.channels_last)
    optimizer = getattr(torch.optim, training.optimizer)(
        model.parameters(), lr=1e-4, **dict(training.arguments)
    )
    for _ in range(2):
        inputs, targets = (tensor.to("cuda") for tensor in training.batch())
        if inputs.is_floating_point():
            layout = torch.channels_last if training.channels_last else torch.contiguous_format
            inputs = inputs.to(dtype=training.dtype or inputs.dtype, memory_format=layout)
        with torch.autocast("cuda", dtype=training.autocast, enabled=training.autocast is not None):
            out = model(inputs)
            if out.dim() == 3:  # words: every position is a sample
                out, targets = out.flatten(0, 1), targets.flatten()
            loss = cross_entropy(out, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def predicted(training: Training, gpu: Gpu) -> dict[str, int]:
    """What a simulation of the card says of the same code."""
    with memlens.simulate(gpu) as simulation:
        two_steps(training)
    timeline = simulation.trace.timeline()
    reserved = timeline.peak_reserved_bytes
    return {
        "allocated_bytes": timeline.peak_allocated_bytes,
        "reserved_bytes": reserved,
        "process_bytes": reserved + gpu.context_bytes[1],
    }
