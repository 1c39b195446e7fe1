"""`MemReporter(model).report()`: every tensor of a model and every other one, with names and sharing."""

from __future__ import annotations

import gc
import sys
from typing import Any

import torch
from torch import nn

from memlens.measurement.tensors.watch import TensorWatch
from memlens.messages import Writable
from memlens.model.tensors import LiveTensor
from memlens.render import tensors as render


class MemReporter:
    """Lists live tensors by device, largest first; each storage once.

    Args:
        model: whose shared tensors `verbose` names; any module alive gives its tensors their names.
        pre_collect: collect garbage before each report.

    Example:
        >>> import torch
        >>> MemReporter(torch.nn.Linear(4, 4)).report(device="cpu")  # doctest: +SKIP
    """

    def __init__(self, model: nn.Module | None = None, pre_collect: bool = False) -> None:
        self.model = model
        self.pre_collect = pre_collect
        self._optimizers: list[torch.optim.Optimizer] = []

    def add_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Keep an optimizer's states in sight; those of every optimizer alive are named all the same."""
        self._optimizers.append(optimizer)

    def tensors(self, device: Any = None) -> list[LiveTensor]:
        """What is alive on a device: every CUDA device and the CPU if None."""
        if self.pre_collect:
            gc.collect()
        living: list[LiveTensor] = []
        for each in _devices(device):
            watch = TensorWatch(each)
            records = sorted(watch.take().live, key=lambda record: -record.bytes)
            living += [record.to_live_tensor() for record in records]
            watch.close()
        return living

    def report(self, verbose: bool = False, device: Any = None, stream: Writable | None = None) -> None:
        """Print the list of each device with its total; `verbose` adds the names that share a storage."""
        for each in _devices(device):
            text = render.listing(str(each), self.tensors(each), self._shared() if verbose else {})
            (stream or sys.stdout).write(text)

    def _shared(self) -> dict[str, list[str]]:
        """First name -> the other names of a storage that several of the model's tensors show."""
        by_storage: dict[int, list[str]] = {}
        if self.model is not None:
            for name, tensor in self.model.named_parameters(remove_duplicate=False):
                by_storage.setdefault(tensor.untyped_storage()._cdata, []).append(name)
        return {names[0]: names[1:] for names in by_storage.values() if len(names) > 1}


def _devices(device: Any) -> list[torch.device]:
    if device is not None:
        given = torch.device(device)
        return [torch.device("cuda", 0) if given == torch.device("cuda") else given]
    cards = [torch.device("cuda", index) for index in range(torch.cuda.device_count())]
    return [*(cards if torch.cuda.is_available() else []), torch.device("cpu")]
