"""A denoising U-Net with attention and time embeddings, trained as diffusion models are, with mean weights.

memlens predict examples/scripts/unet_diffusion.py --gpu "RTX 3090" -- --batch-size 16
"""

import argparse
import copy
import math

import torch
from torch import nn
from torch.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--size", type=int, default=64)
parser.add_argument("--width", type=int, default=64)
args = parser.parse_args()
device = torch.device("cuda")


class Residual(nn.Module):
    def __init__(self, channels, wide, times):
        super().__init__()
        self.first = nn.Sequential(
            nn.GroupNorm(32, channels), nn.SiLU(), nn.Conv2d(channels, wide, 3, padding=1)
        )
        self.time = nn.Linear(times, wide)
        self.second = nn.Sequential(nn.GroupNorm(32, wide), nn.SiLU(), nn.Conv2d(wide, wide, 3, padding=1))
        self.skip = nn.Conv2d(channels, wide, 1) if channels != wide else nn.Identity()

    def forward(self, x, t):
        return self.skip(x) + self.second(self.first(x) + self.time(F.silu(t))[:, :, None, None])


class Attention(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.norm, self.qkv = nn.GroupNorm(32, channels), nn.Linear(channels, 3 * channels)
        self.out = nn.Linear(channels, channels)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = (
            self.qkv(self.norm(x).flatten(2).transpose(1, 2)).view(b, h * w, 3, 8, -1).permute(2, 0, 3, 1, 4)
        )
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, h * w, c)
        return x + self.out(y).transpose(1, 2).reshape(b, c, h, w)


class UNet(nn.Module):
    def __init__(self, width):
        super().__init__()
        times, sizes = 4 * width, [width, 2 * width, 4 * width]
        self.width = width
        self.embed = nn.Sequential(nn.Linear(width, times), nn.SiLU(), nn.Linear(times, times))
        self.into, self.out = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
        self.down = nn.ModuleList(Residual(a, b, times) for a, b in zip([width, *sizes], sizes))
        self.attend = Attention(sizes[-1])
        self.up = nn.ModuleList(Residual(2 * b, a, times) for a, b in zip([width, *sizes], sizes))

    def forward(self, x, steps):
        rates = torch.exp(
            torch.arange(self.width // 2, device=x.device) * (-math.log(1e4) / (self.width // 2))
        )
        angles = steps[:, None] * rates[None]
        t = self.embed(torch.cat([angles.sin(), angles.cos()], dim=1))
        x, kept = self.into(x), []
        for block in self.down:
            x = block(x, t)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        x = self.attend(x)
        for block in reversed(self.up):
            x = block(torch.cat([F.interpolate(x, scale_factor=2.0), kept.pop()], dim=1), t)
        return self.out(F.silu(x))


model = UNet(args.width).to(device, memory_format=torch.channels_last)
mean = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 1000), 0).to(device)
for step in range(1000):
    images = torch.randn(args.batch_size, 3, args.size, args.size).to(
        device, memory_format=torch.channels_last
    )
    steps = torch.randint(0, 1000, (args.batch_size,), device=device)
    noise = torch.randn_like(images)
    share = alphas[steps][:, None, None, None]
    noisy = share.sqrt() * images + (1 - share).sqrt() * noise
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = F.mse_loss(model(noisy, steps).float(), noise)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    with torch.no_grad():
        torch._foreach_lerp_(list(mean.parameters()), list(model.parameters()), 1e-3)
    if step % 100 == 0:
        print(f"{step}: {loss.item():.4f}")
        torch.save({"unet": mean.state_dict()}, "unet.pt")
