"""What loading VGG19 puts on a GPU, between two lines: the tensors, and the rest that nvidia-smi shows.

python examples/track_vgg19.py             on the first CUDA device, or on a simulated T4 where there is none
python examples/track_vgg19.py cpu
"""

import contextlib
import inspect
import sys

import torch
from torch import nn

import memlens
from memlens import MemTracker

# channels of the 3x3 convolutions; "M" halves the image (Simonyan and Zisserman, 2014, configuration E)
LAYERS = [64, 64, "M", 128, 128, "M", *4 * [256], "M", *4 * [512], "M", *4 * [512], "M"]


def vgg19() -> nn.Module:
    layers: list[nn.Module] = []
    channels = 3
    for wide in LAYERS:
        if wide == "M":
            layers.append(nn.MaxPool2d(2))
        else:
            layers += [nn.Conv2d(channels, wide, 3, padding=1), nn.ReLU(inplace=True)]
            channels = wide
    hidden = [nn.Linear(512 * 7 * 7, 4096), nn.ReLU(), nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), *hidden, nn.Dropout(), nn.Linear(4096, 1000))


def main(name: str) -> None:
    device = torch.device(name)
    frame = inspect.currentframe()
    gpu_tracker = MemTracker(frame, device=device)
    gpu_tracker.track()
    cnn = vgg19().to(device)
    gpu_tracker.track()
    if device.type == "cuda":
        cnn(torch.zeros(1, 3, 224, 224, device=device))
        gpu_tracker.explain()


if __name__ == "__main__":
    where = sys.argv[1] if len(sys.argv) > 1 else "cuda:0"
    real = where == "cpu" or torch.cuda.is_available()
    with contextlib.nullcontext() if real else memlens.simulate("T4"):
        main(where)
