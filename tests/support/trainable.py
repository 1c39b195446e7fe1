"""A training script with a switch for each thing that advice may change in it, for the tests of scripts."""

from __future__ import annotations

TRAINABLE = """
import argparse
import contextlib
import functools

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=32)
for name in "amp checkpoint fused one-by-one early half offload delete eight".split():
    parser.add_argument(f"--{name}", action="store_true")
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--frozen", type=int, default=0)
args = parser.parse_args()


class Block(nn.Module):
    def __init__(self, wide):
        super().__init__()
        self.norm, self.up = nn.LayerNorm(wide), nn.Linear(wide, 4 * wide)
        self.down = nn.Linear(4 * wide, wide)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, wide=256, layers=6, out=400):
        super().__init__()
        self.stem = nn.Linear(64, wide)
        self.blocks = nn.ModuleList(Block(wide) for _ in range(layers))
        self.head = nn.Linear(wide, out)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


net = Net().cuda()
if args.half:
    net = net.to(torch.bfloat16)
if args.checkpoint:
    for block in net.blocks:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
for parameter in list(net.stem.parameters()) * bool(args.frozen):
    parameter.requires_grad_(False)
for block in net.blocks[: args.frozen]:
    block.requires_grad_(False)
options = {"fused": True} if args.fused else {"foreach": False} if args.one_by_one else {}
optimizer = torch.optim.AdamW(net.parameters(), **options)
loader = DataLoader(
    TensorDataset(torch.randn(96, 128, 64), torch.randint(0, 400, (96, 128))), args.batch_size, shuffle=True
)
losses = []
around = torch.autocast("cuda", torch.bfloat16) if args.amp else contextlib.nullcontext()
for epoch in range(99):
    for number, (x, y) in enumerate(loader):
        x, y = x.cuda(), y.cuda()
        if args.half:
            x = x.to(torch.bfloat16)
        saving = torch.autograd.graph.save_on_cpu() if args.offload else contextlib.nullcontext()
        with around, saving:
            out = net(x)
            loss = F.cross_entropy(out.flatten(0, 1), y.flatten()) / args.accumulate
        if not args.early and number % args.accumulate == 0:
            optimizer.zero_grad(set_to_none=True)
        loss.backward()
        losses.append(loss.item())
        if args.delete:
            del out, loss
        if (number + 1) % args.accumulate == 0:
            optimizer.step()
            if args.early:
                optimizer.zero_grad(set_to_none=True)
"""
