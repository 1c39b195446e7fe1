"""Segmentation that mistrusts its data and its loss: every check asks the card for a value.

memlens predict examples/scripts/checked_values.py --gpu T4
"""

import math
import sys

import torch
from torch import nn

CLASSES = 5


def batch(device):
    images = torch.randn(8, 3, 96, 96, device=device)
    masks = torch.randint(0, CLASSES, (8, 96, 96)).to(device)
    assert masks.min() >= 0, "a label below the first"
    assert masks.max() < CLASSES, "a label above the last"
    if not torch.isfinite(images).all():
        raise ValueError("a picture holds NaN")
    return images, masks


def is_balanced(masks):
    return bool((torch.bincount(masks.flatten(), minlength=CLASSES) > 0).all())


def main():
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, CLASSES, 1)
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step in range(100):
        images, masks = batch(device)
        if not is_balanced(masks):
            raise RuntimeError("a class is missing")
        loss = nn.functional.cross_entropy(model(images), masks)
        if torch.isnan(loss) or not math.isfinite(loss.item()):
            print("the loss diverged at step", step)
            sys.exit(1)
        optimizer.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
        assert norm.item() < 1e4, "gradients explode"
        optimizer.step()


if __name__ == "__main__":
    main()
