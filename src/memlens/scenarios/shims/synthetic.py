"""`--synthetic`: made-up data, of the same shape, where the script's own is missing.

Covers torchvision's datasets (pictures of their size go through the script's own transforms) and numpy's
memory maps and raw files, as language models are fed from.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any, NamedTuple

from memlens.scenarios.shims.registry import Shims, shim

SAMPLES = 10_000
FILE_BYTES = 64 << 20  # of a made-up binary file


class Pictures(NamedTuple):
    """Mode (RGB, L), width, height and number of classes of a dataset."""

    mode: str
    width: int
    height: int
    classes: int


# sizes as torchvision's documentation of each dataset gives them; folders of photographs as ImageNet's median
DATASETS = {
    "CIFAR10": Pictures("RGB", 32, 32, 10),
    "CIFAR100": Pictures("RGB", 32, 32, 100),
    "MNIST": Pictures("L", 28, 28, 10),
    "FashionMNIST": Pictures("L", 28, 28, 10),
    "KMNIST": Pictures("L", 28, 28, 10),
    "SVHN": Pictures("RGB", 32, 32, 10),
    "STL10": Pictures("RGB", 96, 96, 10),
    "ImageFolder": Pictures("RGB", 500, 375, 1000),
    "ImageNet": Pictures("RGB", 500, 375, 1000),
    "Food101": Pictures("RGB", 512, 512, 101),
}


def made_up(original: Any, pictures: Pictures, shims: Shims) -> Any:
    """A class that is `original` where its data is there, and made-up pictures where it is not."""

    class Known(original):
        def __init__(self, *args: Any, **options: Any) -> None:
            try:
                super().__init__(*args, **options)
                self.is_made_up = False
            except Exception:
                self.is_made_up = True
                self.transform = options.get("transform") or next((a for a in args if callable(a)), None)
                self.target_transform = options.get("target_transform")
                self.classes = [str(number) for number in range(pictures.classes)]
                self.class_to_idx = {name: number for number, name in enumerate(self.classes)}
                self.targets = [number % pictures.classes for number in range(SAMPLES)]
                size = f"{pictures.width}x{pictures.height}"
                shims.say(
                    f"{original.__name__} is made up: pictures of {size}, {pictures.classes} classes",
                    "its data is not on this machine",
                )

        def __len__(self) -> int:
            return SAMPLES if self.is_made_up else super().__len__()

        def __getitem__(self, index: int) -> Any:
            if not self.is_made_up:
                return super().__getitem__(index)
            from PIL import Image

            picture: Any = Image.new(pictures.mode, (pictures.width, pictures.height))
            label: Any = index % pictures.classes
            picture = self.transform(picture) if self.transform else picture
            return picture, self.target_transform(label) if self.target_transform else label

    Known.__name__ = original.__name__
    return Known


@shim("torchvision.datasets")
def torchvision(shims: Shims, datasets: ModuleType) -> dict[str, Any]:
    """Datasets by name."""
    if not shims.synthetic:
        return {}
    return {
        name: made_up(getattr(datasets, name), pictures, shims)
        for name, pictures in DATASETS.items()
        if hasattr(datasets, name)
    }


@shim("numpy")
def files(shims: Shims, numpy: ModuleType) -> dict[str, Any]:
    """`numpy.memmap` and `numpy.fromfile` of a file that is not there: zeros, which any vocabulary has."""
    if not shims.synthetic:
        return {}
    memmap, fromfile = numpy.memmap, numpy.fromfile

    def zeros(file: Any, dtype: Any, shape: Any) -> Any:
        shims.say(f"{os.fspath(file)} is made up: {FILE_BYTES} bytes of zeros", "it is not on this machine")
        return numpy.zeros(shape or FILE_BYTES // numpy.dtype(dtype).itemsize, dtype)

    def map_or_zeros(
        filename: Any,
        dtype: Any = numpy.uint8,
        mode: str = "r+",
        offset: int = 0,
        shape: Any = None,
        **rest: Any,
    ) -> Any:
        if hasattr(filename, "read") or os.path.exists(filename) or "w" in mode:
            return memmap(filename, dtype, mode, offset, shape, **rest)
        return zeros(filename, dtype, shape)

    def read_or_zeros(file: Any, dtype: Any = float, *args: Any, **rest: Any) -> Any:
        if hasattr(file, "read") or os.path.exists(file):
            return fromfile(file, dtype, *args, **rest)
        return zeros(file, dtype, None)

    return {"memmap": map_or_zeros, "fromfile": read_or_zeros}
