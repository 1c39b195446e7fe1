"""A model that is compiled by TorchScript, drawn by TensorBoard and exported before it is trained.

memlens predict examples/scripts/traced_model.py --gpu T4
"""

import torch
from torch import nn
from torch.utils.tensorboard import SummaryWriter


@torch.jit.script
def swish(x):
    return x * torch.sigmoid(x)


class Block(torch.jit.ScriptModule):
    def __init__(self, width):
        super().__init__()
        self.convolution = nn.Conv2d(width, width, 3, padding=1)

    @torch.jit.script_method
    def forward(self, x):
        return x + swish(self.convolution(x))


def main():
    model = nn.Sequential(
        nn.Conv2d(3, 32, 3), Block(32), Block(32), nn.Flatten(1), nn.Linear(32 * 30 * 30, 10)
    )
    model.cuda()
    example = torch.randn(1, 3, 32, 32, device="cuda")
    SummaryWriter("runs").add_graph(model, example)
    traced = torch.jit.trace(model, example)
    traced.save("model.pt")
    optimizer = torch.optim.Adam(traced.parameters())
    for _ in range(50):
        images, labels = torch.randn(32, 3, 32, 32), torch.randint(0, 10, (32,))
        loss = nn.functional.cross_entropy(traced(images.cuda()), labels.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
