from torch import Tensor, nn


class Segmenter(nn.Module):
    """Down twice, up twice: a class for every pixel."""

    def __init__(self, classes: int, width: int = 32) -> None:
        super().__init__()
        self.down = nn.Sequential(
            nn.Conv2d(3, width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.up = nn.Sequential(
            nn.ConvTranspose2d(2 * width, width, 2, stride=2),
            nn.ReLU(),
            nn.ConvTranspose2d(width, classes, 2, stride=2),
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.up(self.down(images))
