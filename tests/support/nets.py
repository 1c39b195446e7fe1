"""Small nets for the tests of summaries."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


def wide_conv(channels: int, out: int = 64) -> nn.Conv2d:
    return nn.Conv2d(channels, out, kernel_size=3, stride=1, padding=1)


class Pair(nn.Module):
    """Two convolutions in a module of their own."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.conv2 = wide_conv(channels), wide_conv(64)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv2(self.conv1(x.to("cpu")))


class Flat(nn.Module):
    """Four convolutions one after the other; with `to("cpu")`, as people write it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2, self.conv3, self.conv4 = (wide_conv(c) for c in (3, 64, 64, 64))

    def forward(self, x: Tensor) -> Tensor:
        return self.conv4(self.conv3(self.conv2(self.conv1(x.to("cpu")))))


class Nested(nn.Module):
    """The same four convolutions, two in each of two modules."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = Pair(3), Pair(64)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv2(self.conv1(x.to("cpu")))


class Pooled(nn.Module):
    """Each convolution with a pooling and an activation that are modules."""

    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(wide_conv(c) for c in (3, 64, 64, 64))
        self.pools = nn.ModuleList(nn.MaxPool2d(2, 2) for _ in range(4))
        self.acts = nn.ModuleList(nn.ReLU() for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for conv, pool, act in zip(self.convs, self.pools, self.acts, strict=True):
            x = act(pool(conv(x)))
        return x


class Functional(Flat):
    """The same with functions in place of modules."""

    def forward(self, x: Tensor) -> Tensor:
        for conv in (self.conv1, self.conv2, self.conv3, self.conv4):
            x = F.relu(F.max_pool2d(conv(x), kernel_size=2, stride=2))
        return x


class Again(nn.Module):
    """One linear layer, applied `times` times."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.layer, self.times = nn.Linear(1024, 1024), times

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.times):
            x = self.layer(x)
        return x


class Tied(nn.Module):
    """A head whose weight is the embedding's."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(1000, 64)
        self.head = nn.Linear(64, 1000, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.embed(ids))


class Outside(nn.Module):
    """A parameter of the model's own, one that nothing uses, and a module that never runs."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(8))
        self.layer = nn.Linear(8, 8)
        self.idle = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) * self.scale


class Many(nn.Module):
    """Returns a dictionary of a tensor and a list of two."""

    def forward(self, x: Tensor) -> dict[str, object]:
        return {"sum": x.sum(0), "parts": [x + 1, (x * 2, None)]}
