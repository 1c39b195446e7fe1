"""Data that is prepared once and kept with `torch.save`: a list of pairs, which `torch.load` gives back.

memlens predict examples/scripts/prepared_data.py --gpu T4
"""

import os

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


def prepare(path):
    rows = [(np.random.rand(40, 16).astype("float32"), number % 3) for number in range(256)]
    torch.save({"rows": rows, "classes": ["low", "middle", "high"]}, path)


class Prepared(Dataset):
    def __init__(self, path):
        if not os.path.exists(path):
            prepare(path)
        kept = torch.load(path, weights_only=False)
        self.rows, self.classes = kept["rows"], kept["classes"]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        series, label = self.rows[index]
        return torch.from_numpy(series), label


def main():
    data = Prepared("prepared.pt")
    recurrent, head = nn.GRU(16, 128, batch_first=True).cuda(), nn.Linear(128, len(data.classes)).cuda()
    optimizer = torch.optim.Adam([*recurrent.parameters(), *head.parameters()])
    for _ in range(5):
        for series, labels in DataLoader(data, batch_size=32, shuffle=True):
            _, last = recurrent(series.cuda())
            loss = nn.functional.cross_entropy(head(last[0]), labels.cuda())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.save({"head": head.state_dict()}, "checkpoint.pt")
        head.load_state_dict(torch.load("checkpoint.pt")["head"])


if __name__ == "__main__":
    main()
