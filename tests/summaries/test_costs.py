"""What a summary costs: no weights' worth of memory, and the same time for every batch."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch")

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="a program's own peak is read from /proc"),
]

# the peak of this very program: what getrusage says begins with that of the process that started it
PEAK = """
from pathlib import Path

def peak():
    line = next(l for l in Path("/proc/self/status").read_text().splitlines() if l.startswith("VmHWM"))
    return int(line.split()[1]) << 10
"""

# a decoder of 7 billion parameters in torch.nn alone: 32 blocks, 4096 wide, 11008 in between, 32000 words
SEVEN_BILLION = """
import torch
from torch import nn
import torch.nn.functional as F

class Block(nn.Module):
    def __init__(self, width=4096, heads=32, hidden=11008):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, hidden, bias=False), nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x):
        b, t, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(b, t, w))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))

class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(32000, 4096)
        self.blocks = nn.ModuleList(Block() for _ in range(32))
        self.norm, self.head = nn.RMSNorm(4096), nn.Linear(4096, 32000, bias=False)

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))

with torch.device("meta"):
    model = Decoder()
import memlens
found = memlens.summary(model, "int64:2048", precision="bf16", verbose=0)
str(found)
assert next(model.parameters()).dtype is torch.float32 and next(model.parameters()).is_meta
print(found.totals.params, found.totals.kept_bytes, peak())
"""

# a model of 256 MiB that is really there
REAL = """
import torch
from torch import nn
model = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(16)))
import memlens
memlens.summary(nn.Linear(8, 8), (2, 8), verbose=0)
before = peak()
memlens.summary(model, (1024, 2048), verbose=0)
print((peak()) - before)
"""


def run(program: str) -> list[int]:
    done = subprocess.run([sys.executable, "-c", PEAK + program], capture_output=True, text=True, check=True)
    return [int(word) for word in done.stdout.split()]


def test_seven_billion_parameters_on_meta() -> None:
    """6.7 billion parameters on meta, summarised with less than 1.5 GiB of RAM (torch alone takes 0.3)."""
    params, kept, peak = run(SEVEN_BILLION)
    assert params == 2 * 32_000 * 4096 + 4096 + 32 * (4 * 4096 * 4096 + 3 * 4096 * 11_008 + 2 * 4096)
    assert kept > 0
    assert peak < 1.5 * 2**30


def test_a_models_weights_are_not_copied() -> None:
    """Summarising 256 MiB of real weights, and 136 MiB of activations, takes less than 32 MiB of RAM."""
    (more,) = run(REAL)
    assert more < 32 << 20
