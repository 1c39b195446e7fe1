"""A GAN: two networks, two optimizers, the generator every second step, one sample kept for looking at.

memlens predict examples/scripts/gan.py --gpu T4 -- --batch-size 64
"""

import argparse

import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=64)
parser.add_argument("--latent", type=int, default=128)
parser.add_argument(
    "--critics", type=int, default=2, help="steps of the discriminator for one of the generator"
)
args = parser.parse_args()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def up(channels, wide, stride=2, padding=1):
    layers = (
        nn.ConvTranspose2d(channels, wide, 4, stride, padding, bias=False),
        nn.BatchNorm2d(wide),
        nn.ReLU(True),
    )
    return nn.Sequential(*layers)


def down(channels, wide):
    return nn.Sequential(
        nn.Conv2d(channels, wide, 4, 2, 1, bias=False), nn.InstanceNorm2d(wide), nn.LeakyReLU(0.2, True)
    )


generator = nn.Sequential(
    up(args.latent, 512, 1, 0),
    up(512, 256),
    up(256, 128),
    up(128, 64),
    nn.ConvTranspose2d(64, 3, 4, 2, 1),
    nn.Tanh(),
).to(device)
critic = nn.Sequential(down(3, 64), down(64, 128), down(128, 256), down(256, 512), nn.Conv2d(512, 1, 4)).to(
    device
)
of_generator = torch.optim.Adam(generator.parameters(), lr=2e-4, betas=(0.5, 0.999))
of_critic = torch.optim.Adam(critic.parameters(), lr=2e-4, betas=(0.5, 0.999))
fixed = torch.randn(64, args.latent, 1, 1, device=device)


def penalty(real, fake):
    """The gradient penalty of WGAN-GP: a gradient of a gradient."""
    share = torch.rand(len(real), 1, 1, 1, device=device)
    mixed = (share * real + (1 - share) * fake).requires_grad_(True)
    (slope,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
    return ((slope.flatten(1).norm(2, dim=1) - 1) ** 2).mean()


history = []
for step in range(1000):
    real = torch.randn(args.batch_size, 3, 64, 64).to(device)
    fake = generator(torch.randn(args.batch_size, args.latent, 1, 1, device=device))
    of_critic.zero_grad()
    loss = critic(fake.detach()).mean() - critic(real).mean() + 10 * penalty(real, fake.detach())
    loss.backward()
    of_critic.step()
    if step % args.critics == 0:
        of_generator.zero_grad()
        against = -critic(generator(torch.randn(args.batch_size, args.latent, 1, 1, device=device))).mean()
        against.backward()
        of_generator.step()
        history.append(against.item())
    if step % 100 == 0:
        with torch.no_grad():
            samples = generator(fixed).cpu()
        torch.save(samples, f"samples-{step}.pt")
