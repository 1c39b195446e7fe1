"""A classifier that fetches the names of its classes, and looks whether a newer version of itself is there.

memlens predict examples/scripts/fetched_names.py --gpu T4
"""

import json
import os
import urllib.request

import torch
from torch import nn

NAMES = "https://example.com/imagenet_classes.txt"
BRANCHES = "https://api.github.com/repos/somebody/classifier/branches"

if not os.path.exists("classes.txt"):
    urllib.request.urlretrieve(NAMES, "classes.txt")
with open("classes.txt") as file:
    names = [line.strip() for line in file]
with urllib.request.urlopen(BRANCHES, timeout=10) as answer:
    print("branches:", [branch["name"] for branch in json.load(answer)])

model = nn.Sequential(
    nn.Conv2d(3, 64, 7, 4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, len(names))
)
model.cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(50):
    images = torch.randn(16, 3, 224, 224, device="cuda")
    labels = torch.randint(len(names), (16,), device="cuda")
    scores = model(images)
    optimizer.zero_grad()
    nn.functional.cross_entropy(scores, labels).backward()
    optimizer.step()
    print(step, names[scores[0].argmax().item()])
