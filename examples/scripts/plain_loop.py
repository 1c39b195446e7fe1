"""A plain training loop with everything that people put into one.

Mixed precision with a GradScaler, clipping, gradient accumulation, a moving average of the weights, a
warm-up schedule, a loader with workers and pinned memory, early stopping and checkpoints.

memlens predict examples/scripts/plain_loop.py --gpu "RTX 3060 12GB" -- --batch-size 64
"""

import argparse
import copy
import math

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    """Random pictures of ten classes."""

    def __init__(self, count, size):
        self.count, self.size = count, size

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.randn(3, self.size, self.size), index % 10


def make_model(width):
    layers, channels = [], 3
    for step in range(4):
        wide = width * 2**step
        layers += [nn.Conv2d(channels, wide, 3, 2, 1), nn.BatchNorm2d(wide), nn.ReLU(inplace=True)]
        channels = wide
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(channels, 10)]
    return nn.Sequential(*layers)


class Average:
    """An exponential moving average of a model's weights."""

    def __init__(self, model, decay=0.999):
        self.model, self.decay = copy.deepcopy(model).eval().requires_grad_(False), decay

    @torch.no_grad()
    def update(self, model):
        for mine, theirs in zip(self.model.state_dict().values(), model.state_dict().values()):
            if mine.is_floating_point():
                mine.lerp_(theirs, 1 - self.decay)


def evaluate(model, loader, device):
    model.eval()
    right = total = 0
    with torch.no_grad():
        for pictures, labels in loader:
            guesses = model(pictures.to(device)).argmax(1).cpu()
            right += (guesses == labels).sum().item()
            total += len(labels)
    model.train()
    return right / total


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--accumulate", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=10)
    args = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    torch.backends.cudnn.benchmark = True

    train = DataLoader(
        Pictures(512, 64), args.batch_size, shuffle=True, num_workers=4, pin_memory=True, drop_last=True
    )
    test = DataLoader(Pictures(64, 64), args.batch_size, num_workers=2, pin_memory=True)
    model = make_model(args.width).to(device)
    average = Average(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4, nesterov=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1.0, (n + 1) / 100))
    scaler = torch.amp.GradScaler("cuda", enabled=device.type == "cuda")
    loss_of = nn.CrossEntropyLoss(label_smoothing=0.1)
    best, patience = 0.0, 3

    for epoch in range(args.epochs):
        for number, (pictures, labels) in enumerate(train):
            pictures, labels = pictures.to(device, non_blocking=True), labels.to(device, non_blocking=True)
            with torch.autocast("cuda", dtype=torch.float16, enabled=device.type == "cuda"):
                loss = loss_of(model(pictures), labels) / args.accumulate
            if not math.isfinite(loss.item()):
                raise SystemExit(f"the loss is {loss.item()}")
            scaler.scale(loss).backward()
            if (number + 1) % args.accumulate:
                continue
            scaler.unscale_(optimizer)
            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad(set_to_none=True)
            schedule.step()
            average.update(model)
            print(
                f"epoch {epoch} loss {loss.item():.3f} norm {norm:.2f} rate {schedule.get_last_lr()[0]:.4f}"
            )
        accuracy = evaluate(average.model, test, device)
        patience = 3 if accuracy > best else patience - 1
        best = max(best, accuracy)
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, "checkpoint.pt")
        if patience == 0:
            break


if __name__ == "__main__":
    main()
