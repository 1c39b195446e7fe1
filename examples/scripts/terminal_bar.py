"""A loop with a progress bar of its own, as wide as the terminal, that asks before it overwrites.

memlens predict examples/scripts/terminal_bar.py --gpu T4
"""

import os
import shutil
import sys

import torch
from torch import nn

_, width = os.popen("stty size", "r").read().split()
BAR = int(width) - 20
STEPS = 50


def progress(step, loss):
    done = BAR * (step + 1) // STEPS
    line = f"[{'=' * done}{'.' * (BAR - done)}] loss {loss:.3f}"
    sys.stdout.write(line[: shutil.get_terminal_size().columns] + "\r")
    sys.stdout.flush()


def main():
    if input("Overwrite runs/latest? [y/n] ") != "y":
        sys.exit("nothing was changed")
    run = input("Name of this run: ") or "latest"
    device = torch.device("cuda:0")
    model = nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(STEPS):
        pictures, labels = torch.randn(128, 1, 28, 28), torch.randint(0, 10, (128,))
        loss = nn.functional.cross_entropy(model(pictures.to(device)), labels.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        progress(step, loss.item())
    os.makedirs("runs", exist_ok=True)
    torch.save(model.state_dict(), f"runs/{run}.pt")


if __name__ == "__main__":
    main()
