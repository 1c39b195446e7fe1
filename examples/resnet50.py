"""ResNet-50 (He and others, 2015) in plain torch.nn, with the stride in the 3x3 convolution as usual.

memlens predict examples/resnet50.py:resnet50 --input 3x224x224 --batch-size 64 --gpu 4090
"""

import torch
from torch import nn


def convolution(channels: int, wide: int, size: int, stride: int = 1) -> nn.Sequential:
    """A convolution without bias and the normalisation that follows it."""
    return nn.Sequential(
        nn.Conv2d(channels, wide, size, stride, padding=size // 2, bias=False), nn.BatchNorm2d(wide)
    )


class Bottleneck(nn.Module):
    """1x1 narrows to a quarter, 3x3 works, 1x1 widens again; the input is added to the result."""

    def __init__(self, channels: int, narrow: int, stride: int = 1) -> None:
        super().__init__()
        wide = 4 * narrow
        self.reduce = convolution(channels, narrow, 1)
        self.work = convolution(narrow, narrow, 3, stride)
        self.expand = convolution(narrow, wide, 1)
        changes = stride != 1 or channels != wide
        self.shortcut = convolution(channels, wide, 1, stride) if changes else nn.Identity()
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = self.shortcut(x)
        x = self.relu(self.reduce(x))
        x = self.relu(self.work(x))
        return self.relu(self.expand(x) + kept)


class ResNet(nn.Module):
    def __init__(self, depths: tuple[int, ...] = (3, 4, 6, 3), classes: int = 1000) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            convolution(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1)
        )
        stages, channels = [], 64
        for number, depth in enumerate(depths):
            narrow = 64 * 2**number
            blocks = []
            for block in range(depth):
                blocks.append(Bottleneck(channels, narrow, 2 if number > 0 and block == 0 else 1))
                channels = 4 * narrow
            stages.append(nn.Sequential(*blocks))
        self.stages = nn.Sequential(*stages)
        self.head = nn.Linear(channels, classes)
        self.example_input_array = torch.zeros(1, 3, 224, 224)  # what predict and summary feed it

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        maps = self.stages(self.stem(images))
        return self.head(maps.mean((2, 3)))


def resnet50(classes: int = 1000) -> nn.Module:
    return ResNet(classes=classes)
