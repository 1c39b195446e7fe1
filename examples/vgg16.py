"""VGG16 (Simonyan and Zisserman, 2014) in plain torch.nn, whose memory everybody computes by hand.

memlens predict examples/vgg16.py:vgg16 --input 3x224x224 --batch-size 32 --gpu 4090
"""

import torch
from torch import nn

# channels of the 3x3 convolutions; "M" halves the image
LAYERS = [64, 64, "M", 128, 128, "M", 256, 256, 256, "M", 512, 512, 512, "M", 512, 512, 512, "M"]


class VGG(nn.Module):
    def __init__(self, classes: int = 1000) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for wide in LAYERS:
            if wide == "M":
                layers.append(nn.MaxPool2d(2))
            else:
                layers += [nn.Conv2d(channels, wide, 3, padding=1), nn.ReLU(inplace=True)]
                channels = wide
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(),
            nn.Linear(4096, classes),
        )
        self.example_input_array = torch.zeros(1, 3, 224, 224)  # what predict and summary feed it

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        maps = self.features(images)
        return self.classifier(maps.flatten(1))


def vgg16(classes: int = 1000) -> nn.Module:
    return VGG(classes)
