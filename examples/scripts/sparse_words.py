"""Word vectors whose gradients are sparse: only the rows of the words in a batch.

    memlens predict examples/scripts/sparse_words.py --gpu T4

Adam's states are dense all the same: two numbers for each weight. So the vectors and their states fill the
card, and the batch hardly matters.
"""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--words", type=int, default=1_000_000)
parser.add_argument("--width", type=int, default=300)
parser.add_argument("--batch-size", type=int, default=4096)
options = parser.parse_args()

centre = nn.Embedding(options.words, options.width, sparse=True).cuda()
context = nn.Embedding(options.words, options.width, sparse=True).cuda()
optimizer = torch.optim.SparseAdam([centre.weight, context.weight], lr=1e-3)

for step in range(1000):
    words = torch.randint(options.words, (options.batch_size,), device="cuda")
    near = torch.randint(options.words, (options.batch_size, 5), device="cuda")
    optimizer.zero_grad()
    scores = torch.bmm(context(near), centre(words).unsqueeze(2)).squeeze(2)
    loss = -nn.functional.logsigmoid(scores).mean()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(step, loss.item())
