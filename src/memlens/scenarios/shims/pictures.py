"""`--synthetic`: torchvision's data sets without their data, as objects of their own class.

Where the constructor fails because the data is not there, the object is filled with blank pictures of its
size, in the attributes where its own methods look for them. So its `__getitem__` runs as it is, with the
script's transforms, and it can be pickled, sliced and subclassed.
"""

from __future__ import annotations

import functools
import inspect
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from memlens.scenarios.shims.registry import Shims, shim


class Pictures(NamedTuple):
    """How a data set is filled, width, height, classes, and how many it has for training and for all else."""

    fill: Callable[[Any, Pictures, dict[str, Any]], None]
    width: int
    height: int
    classes: int
    train: int
    other: int

    def count(self, options: dict[str, Any]) -> int:
        """How many pictures the part has that was asked for."""
        part = options.get("train", options.get("split", options.get("image_set", True)))
        return self.train if part is True or str(part).startswith("train") else self.other

    def labels(self, options: dict[str, Any]) -> list[int]:
        return [number % self.classes for number in range(self.count(options))]


def _classes(self: Any, kind: Pictures) -> None:
    """Names of classes, where the class does not have them itself."""
    if not hasattr(type(self), "classes"):
        self.classes = [f"class {number}" for number in range(kind.classes)]
    if not hasattr(type(self), "class_to_idx") and isinstance(self.classes[0], str):
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}


def _numpy(*shape: int) -> Any:
    import numpy

    return numpy.zeros(shape, numpy.uint8)  # its pages are never touched


def grey(self: Any, kind: Pictures, options: dict[str, Any]) -> None:
    """A tensor of pictures, and one of labels (MNIST's family)."""
    import torch

    self.data = torch.from_numpy(_numpy(kind.count(options), kind.height, kind.width))
    self.targets = torch.tensor(kind.labels(options))


def written(self: Any, kind: Pictures, options: dict[str, Any]) -> None:
    """The same, with eight facts about each digit in place of its label (QMNIST)."""
    grey(self, kind, options)
    self.compat = options.get("compat", True)
    self.targets = self.targets.unsqueeze(1).repeat(1, 8)


def rows(self: Any, kind: Pictures, options: dict[str, Any]) -> None:
    """An array of pictures with colours last, and a list of labels (CIFAR)."""
    self.data, self.targets = _numpy(kind.count(options), kind.height, kind.width, 3), kind.labels(options)


def planes(self: Any, kind: Pictures, options: dict[str, Any]) -> None:
    """An array of pictures with colours first, and an array of labels (SVHN, STL10)."""
    import numpy

    self.data = _numpy(kind.count(options), 3, kind.height, kind.width)
    self.labels = numpy.array(kind.labels(options))


def flat(self: Any, kind: Pictures, options: dict[str, Any]) -> None:
    """An array of grey pictures, and a list of labels (USPS)."""
    self.data, self.targets = _numpy(kind.count(options), kind.height, kind.width), kind.labels(options)


@functools.cache
def _file(mode: str, width: int, height: int, ending: str) -> str:
    """A blank picture in a file of its own, in the folder that is thrown away."""
    from PIL import Image

    path = Path(tempfile.gettempdir(), f"blank-{mode}-{width}x{height}{ending}")
    Image.new(mode, (width, height)).save(path)
    return str(path)


def files(self: Any, kind: Pictures, options: dict[str, Any]) -> None:
    """Pairs of a picture's path and its label, under every name that a data set of files has for them."""
    from torchvision.datasets.folder import default_loader

    path, labels = _file("RGB", kind.width, kind.height, ".jpg"), kind.labels(options)
    pairs = [(path, label) for label in labels]
    self.samples = self.imgs = self._samples = pairs
    self.targets = self._labels = labels
    self._image_files = [path] * len(labels)
    self.loader = options.get("loader") or default_loader
    self.extensions = (".jpg",)


def pets(self: Any, kind: Pictures, options: dict[str, Any]) -> None:
    """Pictures with a class, and with a mask of each pixel's."""
    types = options.get("target_types", "category")
    self._target_types = [types] if isinstance(types, str) else list(types)
    self._labels = kind.labels(options)
    self._bin_labels = [label % 2 for label in self._labels]
    self._images = [_file("RGB", kind.width, kind.height, ".jpg")] * len(self._labels)
    self._segs = [_file("L", kind.width, kind.height, ".png")] * len(self._labels)


def masks(self: Any, kind: Pictures, options: dict[str, Any]) -> None:
    """Pictures, each with a mask (VOC)."""
    count = kind.count(options)
    self.images = [_file("RGB", kind.width, kind.height, ".jpg")] * count
    self.targets = [_file("P", kind.width, kind.height, ".png")] * count


ANNOTATION = """<annotation><filename>blank.jpg</filename>
<size><width>{width}</width><height>{height}</height><depth>3</depth></size>{objects}</annotation>"""
OBJECT = """<object><name>{name}</name><difficult>0</difficult><truncated>0</truncated>
<bndbox><xmin>48</xmin><ymin>24</ymin><xmax>195</xmax><ymax>371</ymax></bndbox></object>"""
NAMES = ("person", "dog", "car")  # three objects a picture: what VOC has


def boxes(self: Any, kind: Pictures, options: dict[str, Any]) -> None:
    """Pictures, each with an annotation of three objects (VOC)."""
    masks(self, kind, options)
    path = Path(tempfile.gettempdir(), "blank.xml")
    objects = "".join(OBJECT.format(name=name) for name in NAMES)
    path.write_text(ANNOTATION.format(width=kind.width, height=kind.height, objects=objects))
    self.targets = [str(path)] * len(self.images)


def streets(self: Any, kind: Pictures, options: dict[str, Any]) -> None:
    """Pictures, each with one mask for every kind of target that was asked for (Cityscapes)."""
    types = options.get("target_type", "instance")
    self.mode, self.split = "gtFine", options.get("split", "train")
    self.target_type = [types] if isinstance(types, str) else list(types)
    count, mask = kind.count(options), _file("L", kind.width, kind.height, ".png")
    self.images = [_file("RGB", kind.width, kind.height, ".jpg")] * count
    self.targets = [[mask for _ in self.target_type] for _ in range(count)]


def faces(self: Any, kind: Pictures, options: dict[str, Any]) -> None:
    """Pictures with 40 attributes (CelebA)."""
    import torch

    count = kind.count(options)
    types = options.get("target_type", "attr")
    self.target_type = [types] if isinstance(types, str) else list(types)
    self.filename = [_file("RGB", kind.width, kind.height, ".jpg")] * count
    self.attr = torch.zeros(1, 40, dtype=torch.int64).expand(count, 40)
    self.identity = torch.zeros(1, 1, dtype=torch.int64).expand(count, 1)
    self.bbox = torch.zeros(1, 4, dtype=torch.int64).expand(count, 4)
    self.landmarks_align = torch.zeros(1, 10, dtype=torch.int64).expand(count, 10)
    self.attr_names = [f"attribute {number}" for number in range(40)]


# sizes and numbers as torchvision's documentation and the data sets' own pages give them; photographs of many
# sizes as their median or usual one
DATASETS: dict[str, Pictures] = {
    "MNIST": Pictures(grey, 28, 28, 10, 60_000, 10_000),
    "FashionMNIST": Pictures(grey, 28, 28, 10, 60_000, 10_000),
    "KMNIST": Pictures(grey, 28, 28, 10, 60_000, 10_000),
    "QMNIST": Pictures(written, 28, 28, 10, 60_000, 60_000),
    "EMNIST": Pictures(grey, 28, 28, 47, 112_800, 18_800),
    "USPS": Pictures(flat, 16, 16, 10, 7_291, 2_007),
    "CIFAR10": Pictures(rows, 32, 32, 10, 50_000, 10_000),
    "CIFAR100": Pictures(rows, 32, 32, 100, 50_000, 10_000),
    "SVHN": Pictures(planes, 32, 32, 10, 73_257, 26_032),
    "STL10": Pictures(planes, 96, 96, 10, 5_000, 8_000),
    "ImageFolder": Pictures(files, 500, 375, 1000, 10_000, 10_000),
    "DatasetFolder": Pictures(files, 500, 375, 1000, 10_000, 10_000),
    "ImageNet": Pictures(files, 500, 375, 1000, 10_000, 10_000),
    "Imagenette": Pictures(files, 500, 375, 10, 9_469, 3_925),
    "Food101": Pictures(files, 512, 512, 101, 75_750, 25_250),
    "Flowers102": Pictures(files, 667, 500, 102, 1_020, 6_149),
    "StanfordCars": Pictures(files, 600, 400, 196, 8_144, 8_041),
    "DTD": Pictures(files, 500, 500, 47, 1_880, 1_880),
    "FGVCAircraft": Pictures(files, 1024, 700, 100, 3_334, 3_333),
    "SUN397": Pictures(files, 500, 375, 397, 10_000, 10_000),
    "EuroSAT": Pictures(files, 64, 64, 10, 27_000, 27_000),
    "GTSRB": Pictures(files, 43, 43, 43, 26_640, 12_630),
    "Places365": Pictures(files, 256, 256, 365, 10_000, 10_000),
    "Country211": Pictures(files, 500, 375, 211, 31_650, 21_100),
    "OxfordIIITPet": Pictures(pets, 500, 375, 37, 3_680, 3_669),
    "VOCSegmentation": Pictures(masks, 500, 375, 21, 1_464, 1_449),
    "VOCDetection": Pictures(boxes, 500, 375, 20, 5_717, 5_823),
    "Cityscapes": Pictures(streets, 2048, 1024, 30, 2_975, 500),
    "CelebA": Pictures(faces, 178, 218, 10_177, 162_770, 19_867),
}


@shim("torchvision.datasets")
def torchvision(shims: Shims, datasets: ModuleType) -> dict[str, Any]:
    """Constructors of data sets by name."""
    if not shims.synthetic:
        return {}
    return {
        f"{name}.__init__": filled(getattr(datasets, name), shims, datasets.VisionDataset)
        for name in DATASETS
        if hasattr(datasets, name)
    }


def filled(cls: Any, shims: Shims, base: Any) -> Any:
    """The constructor of `cls`, with a way out where its data is not there."""
    original = cls.__init__
    signature = inspect.signature(original)

    @functools.wraps(original)
    def construct(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            original(self, *args, **kwargs)
        except (OSError, RuntimeError, ValueError, ImportError):
            name = next(parent.__name__ for parent in type(self).__mro__ if parent.__name__ in DATASETS)
            kind = DATASETS[name]
            options = dict(signature.bind(self, *args, **kwargs).arguments)
            options |= options.pop("kwargs", {})  # EMNIST hands MNIST's on
            changes = {
                key: options[key]
                for key in ("transforms", "transform", "target_transform")
                if options.get(key)
            }
            base.__init__(self, options.get("root", ""), **changes)
            for key, value in options.items():
                if key not in ("self", "root", *changes) and not hasattr(type(self), key):
                    setattr(self, key, value)
            _classes(self, kind)
            kind.fill(self, kind, options)
            shims.make_up(
                f"{name} is made up: {kind.count(options):,} pictures of {kind.width}x{kind.height}, "
                f"{kind.classes:,} classes"
            )

    return construct
