"""A one-stage detector on pictures with a changing number of boxes: masks, top-k, non-maximum suppression.

How many boxes pass a threshold depends on data, which nothing computes here: memlens takes all of them, and
says so.

memlens predict examples/scripts/detection.py --gpu T4
"""

import random

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset

CLASSES, SIZE, STRIDE = 20, 256, 16


class Scenes(Dataset):
    """Random pictures with one to seven boxes."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        corners = torch.rand(random.randint(1, 7), 4) * SIZE / 2
        boxes = torch.cat([corners[:, :2], corners[:, :2] + corners[:, 2:] + 8], dim=1)
        return torch.rand(3, SIZE, SIZE), {"boxes": boxes, "labels": torch.randint(0, CLASSES, (len(boxes),))}


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        widths = [3, 32, 64, 128, 256]
        steps = [
            nn.Sequential(nn.Conv2d(a, b, 3, 2, 1), nn.BatchNorm2d(b), nn.ReLU())
            for a, b in zip(widths, widths[1:])
        ]
        self.body, self.head = nn.Sequential(*steps), nn.Conv2d(256, 4 + CLASSES, 1)
        grid = torch.arange(SIZE // STRIDE) * STRIDE + STRIDE / 2
        self.register_buffer("centres", torch.cartesian_prod(grid, grid))

    def forward(self, images):
        out = self.head(self.body(images)).flatten(2).transpose(1, 2)
        sides, scores = out[..., :4].exp() * STRIDE, out[..., 4:]
        return torch.cat([self.centres - sides[..., :2], self.centres + sides[..., 2:]], dim=-1), scores


def overlaps(a, b):
    top, bottom = torch.max(a[:, None, :2], b[None, :, :2]), torch.min(a[:, None, 2:], b[None, :, 2:])
    common = (bottom - top).clamp(min=0).prod(2)
    area_a, area_b = ((x[:, 2:] - x[:, :2]).prod(1) for x in (a, b))
    return common / (area_a[:, None] + area_b[None] - common + 1e-6)


def loss_of(boxes, scores, target):
    match = overlaps(boxes, target["boxes"])
    best, which = match.max(1)
    positive = best > 0.3
    wanted = torch.zeros_like(scores)
    wanted[positive, target["labels"][which[positive]]] = 1.0
    loss = F.binary_cross_entropy_with_logits(scores, wanted)
    if positive.any():
        loss = loss + F.smooth_l1_loss(boxes[positive], target["boxes"][which[positive]])
    return loss


def suppress(boxes, scores, limit=0.5):
    confident = scores.sigmoid().max(1).values > 0.05
    boxes, scores = boxes[confident], scores[confident]
    order = scores.max(1).values.argsort(descending=True)[:100]
    match = overlaps(boxes[order], boxes[order]).triu(1)
    return order[match.amax(0) < limit]


def together(batch):
    return [image for image, _ in batch], [target for _, target in batch]


def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(Scenes(), 4, shuffle=True, num_workers=2, collate_fn=together)
    model = Detector().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(10):
        for images, targets in loader:
            images = torch.stack([image.to(device) for image in images])
            targets = [{name: value.to(device) for name, value in target.items()} for target in targets]
            boxes, scores = model(images)
            loss = sum(loss_of(b, s, t) for b, s, t in zip(boxes, scores, targets)) / len(targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                kept = [len(suppress(b, s)) for b, s in zip(boxes, scores)]
            print(f"epoch {epoch} loss {loss.item():.3f} kept {kept}")


if __name__ == "__main__":
    main()
