"""Models for the tests of advice: small, and each with one thing that advice can change."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Tokens(nn.Module):
    """A language model: an embedding, like layers one after the other, a head."""

    def __init__(self, layers: int = 4, wide: int = 256, vocabulary: int = 1000, heads: int = 4) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, wide)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(wide, heads, 4 * wide, batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.head = nn.Linear(wide, vocabulary)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


class Residual(nn.Module):
    """Activations that may overwrite their input, except the first one: its input is the shortcut."""

    def __init__(self, channels: int = 16, depth: int = 4) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        self.first = nn.LeakyReLU()
        pairs = [(nn.Conv2d(channels, channels, 3, padding=1), nn.LeakyReLU()) for _ in range(depth)]
        self.body = nn.Sequential(*(layer for pair in pairs for layer in pair))
        self.last = nn.Conv2d(channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        return self.last(self.body(self.first(x))) + x


class Attention(nn.Module):
    """Attention that asks for its weights and throws them away, as the default of MultiheadAttention does."""

    def __init__(self, wide: int = 64, heads: int = 4) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(wide, heads, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x)[0]


def conv_net(channels: int = 32, blocks: int = 4, norm: bool = True) -> nn.Module:
    """Convolutions with BatchNorm, in like blocks."""
    widths = [3, *[channels] * (blocks - 1)]
    return nn.Sequential(*(ConvBlock(inside, channels, norm) for inside in widths), Pool(channels))


class ConvBlock(nn.Module):
    """Convolution, norm, ReLU."""

    def __init__(self, inside: int, outside: int, norm: bool) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inside, outside, 3, padding=1)
        self.norm = nn.BatchNorm2d(outside) if norm else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.conv(x)))


class Pool(nn.Module):
    """The mean of each channel, and ten classes."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.head = nn.Linear(channels, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.mean(x, (2, 3)))
