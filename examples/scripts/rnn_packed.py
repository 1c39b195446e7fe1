"""A recurrent network on sequences of different length, packed so that padding costs nothing.

memlens predict examples/scripts/rnn_packed.py --gpu T4 -- --hidden 512
"""

import argparse
import random

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader

WORDS, TAGS = 5000, 17


class Tagger(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.words = nn.Embedding(WORDS, 256, padding_idx=0)
        self.lstm = nn.LSTM(256, hidden, num_layers=2, batch_first=True, bidirectional=True, dropout=0.3)
        self.tags = nn.Linear(2 * hidden, TAGS)

    def forward(self, ids, lengths):
        packed = pack_padded_sequence(self.words(ids), lengths, batch_first=True, enforce_sorted=False)
        out, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.tags(out)


def sentences(count):
    rng = random.Random(0)
    for _ in range(count):
        length = rng.randint(5, 80)
        yield torch.randint(1, WORDS, (length,)), torch.randint(0, TAGS, (length,))


def together(batch):
    ids, tags = zip(*batch)
    lengths = torch.tensor([len(i) for i in ids])
    return (
        pad_sequence(ids, batch_first=True),
        pad_sequence(tags, batch_first=True, padding_value=-100),
        lengths,
    )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--hidden", type=int, default=256)
    parser.add_argument("--batch-size", type=int, default=32)
    args = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Tagger(args.hidden).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=2)
    loader = DataLoader(
        list(sentences(640)), args.batch_size, shuffle=True, collate_fn=together, num_workers=2
    )
    for epoch in range(5):
        total = 0.0
        for ids, tags, lengths in loader:
            scores = model(ids.to(device), lengths)
            loss = nn.functional.cross_entropy(
                scores.flatten(0, 1), tags.to(device).flatten(), ignore_index=-100
            )
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_value_(model.parameters(), 5.0)
            optimizer.step()
            total += loss.item()
        schedule.step(total / len(loader))
        print(epoch, total / len(loader), optimizer.param_groups[0]["lr"])


if __name__ == "__main__":
    main()
