"""FCN on Cityscapes as mmsegmentation trained it on V100 cards, in plain torch.

The published table has `max_memory_allocated` of one of four cards in units of 0.1 GiB. The program is
followed by its public configs: ResNet-50 or -101 with dilated last stages ("c" has three small convolutions
as stem, "b" one of 7 x 7), a head of two convolutions on the last stage and one of one on the third, logits
resized to the labels, SGD with momentum, gradients set to zero rather than freed, `cudnn.benchmark`. DDP's
buckets, a copy of the gradients, are made as such. Batch norm across cards keeps what it keeps on one.
"""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.accuracy.job import MIB, Job, Predicted, Table, stated

CARD = "V100 32GB"
CLASSES, STEPS = 19, 3
BLOCKS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3)}


class Shape(NamedTuple):
    """A program by its name in the table."""

    depth: int
    small_stem: bool  # the 7 x 7 of torchvision's ResNet is the other
    output_stride: int
    dilation: int  # of the heads
    height: int
    width: int
    batch: int


def read_shape(program: str) -> Shape:
    """The sizes in a name such as "FCN D6 R-50b-D16 512x1024 batch 2/GPU SGD cudnn.benchmark"."""
    pattern = r"FCN (?:D(\d) )?R-(\d+)(b?)-D(\d+) (\d+)x(\d+) batch (\d+)/GPU"
    found = re.match(pattern, program)
    assert found is not None, program
    dilation, depth, b, stride, height, width, batch = found.groups()
    return Shape(int(depth), not b, int(stride), int(dilation or 1), int(height), int(width), int(batch))


def convolution(inputs: int, outputs: int, size: int, stride: int = 1, dilation: int = 1) -> nn.Sequential:
    """A convolution with batch norm and an activation in place."""
    padding = dilation * (size // 2)
    conv = nn.Conv2d(inputs, outputs, size, stride, padding, dilation, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


class Bottleneck(nn.Module):
    def __init__(self, inputs: int, width: int, stride: int, dilation: int) -> None:
        super().__init__()
        self.first = convolution(inputs, width, 1)
        self.second = convolution(width, width, 3, stride, dilation)
        self.third = convolution(width, 4 * width, 1)[:2]
        changes = stride != 1 or inputs != 4 * width
        self.shortcut = convolution(inputs, 4 * width, 1, stride)[:2] if changes else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = self.third(self.second(self.first(x)))
        y += self.shortcut(x)
        return F.relu(y, inplace=True)


class Head(nn.Module):
    """Convolutions, joined with their input or not, and the classes."""

    def __init__(self, inputs: int, width: int, convs: int, joined: bool, dilation: int) -> None:
        super().__init__()
        sizes = [inputs] + [width] * (convs - 1)
        self.convs = nn.Sequential(*(convolution(size, width, 3, dilation=dilation) for size in sizes))
        self.join = convolution(inputs + width, width, 3) if joined else None
        self.dropout, self.classes = nn.Dropout2d(0.1), nn.Conv2d(width, CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.convs(x)
        if self.join is not None:
            y = self.join(torch.cat([x, y], dim=1))
        return self.classes(self.dropout(y))


class FCN(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        small = [convolution(3, 32, 3, 2), convolution(32, 32, 3), convolution(32, 64, 3)]
        self.stem = nn.Sequential(*(small if shape.small_stem else [convolution(3, 64, 7, 2)]))
        self.pool = nn.MaxPool2d(3, 2, 1)
        strides, dilations = ((1, 2, 1, 1), (1, 1, 2, 4))
        if shape.output_stride == 16:
            strides, dilations = ((1, 2, 2, 1), (1, 1, 1, 2))
        inputs, stages = 64, []
        for number, count in enumerate(BLOCKS[shape.depth]):
            width, dilation = 64 * 2**number, dilations[number]
            first = Bottleneck(inputs, width, strides[number], max(1, dilation // 2))
            inputs = 4 * width
            stages.append(
                nn.Sequential(first, *(Bottleneck(inputs, width, 1, dilation) for _ in range(count - 1)))
            )
        self.stages = nn.ModuleList(stages)
        self.head = Head(2048, 512, 2, True, shape.dilation)
        self.extra = Head(1024, 256, 1, False, shape.dilation)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        x = self.pool(self.stem(x))
        outputs = []
        for stage in self.stages:
            x = stage(x)
            outputs.append(x)
        return self.head(outputs[3]), self.extra(outputs[2])


def loss_of(logits: Tensor, labels: Tensor, weight: float, aligned: bool) -> tuple[Tensor, Tensor]:
    """Cross entropy of every pixel, averaged, and the share of right ones."""
    logits = F.interpolate(logits, labels.shape[2:], mode="bilinear", align_corners=aligned)
    wanted = labels.squeeze(1)
    each = F.cross_entropy(logits, wanted, reduction="none", ignore_index=255)
    best = logits.topk(1, dim=1)[1].transpose(0, 1)
    right = best.eq(wanted.unsqueeze(0).expand_as(best)).reshape(-1).float().sum(0, keepdim=True)
    return weight * each.mean(), right


def train(shape: Shape) -> float:
    """The highest allocated MiB of the first steps."""
    torch.backends.cudnn.benchmark = True
    model = FCN(shape).cuda().train()
    buckets = [torch.empty_like(p) for p in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, foreach=False)
    aligned = shape.height == 769
    for _ in range(STEPS):
        images = torch.zeros(shape.batch, 3, shape.height, shape.width).cuda()
        labels = torch.zeros(shape.batch, 1, shape.height, shape.width, dtype=torch.int64).cuda()
        main, extra = model(images)
        losses = [loss_of(main, labels, 1.0, aligned), loss_of(extra, labels, 0.4, aligned)]
        total = losses[0][0] + losses[1][0]
        optimizer.zero_grad(set_to_none=False)
        total.backward()
        optimizer.step()
    del buckets
    return torch.cuda.max_memory_allocated() / MIB


def jobs(truth: Path) -> list[Job]:
    with (truth / "mmseg_fcn_v100.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [
        Job("mmseg_fcn_v100", row["program"].partition(" batch")[0],
            f"ResNet-{read_shape(row['program']).depth}",
            row["program"], {"allocated": float(row["measured_mib"])})
        for row in rows
    ]  # fmt: skip


def predict(job: Job) -> dict[str, Predicted]:
    import memlens

    with memlens.simulate(gpu=CARD) as sim:
        allocated = train(read_shape(job.row))
    return stated(sim.trace, {"allocated": allocated})


def model(job: Job) -> Any:
    shape = read_shape(job.row)
    return FCN(shape), [torch.zeros(shape.batch, 3, shape.height, shape.width)]


SEGMENTATION = Table(
    "mmseg_fcn_v100", "Segmentation networks on V100 cards",
    "FCN with ResNet-50 and -101 on Cityscapes under DDP, float32, `cudnn.benchmark`, torch 1.5 and 1.6; "
    "highest allocated memory, published in steps of 0.1 GiB.",
    jobs, predict, (), model, step_mib=102.4,
)  # fmt: skip
