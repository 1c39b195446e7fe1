"""A program of several files that are named as libraries are: `datasets.py`, `profile.py`, `utils/`.

memlens predict examples/scripts/own_modules/own_modules.py --gpu T4
"""

import profile

import datasets
import torch
from torch.utils.data import DataLoader
from utils import device
from utils.losses import contrast

model = torch.nn.Linear(datasets.WIDTH, 128).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for pair in DataLoader(datasets.load_dataset("pairs", split="train"), batch_size=64):
    with profile.stopwatch("step"):
        left, right = (model(side.to(device)) for side in pair)
        optimizer.zero_grad()
        contrast(left, right).backward()
        optimizer.step()
