"""Ten small models, one of each kind, and a counter of CPU storages that is independent of the tracker."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint


class StorageCounter(TorchDispatchMode):
    """Counts the storages that operators return, from their birth to their death."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: dict[int, int] = {}
        self._next = 0
        self._seen: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()

    @property
    def bytes(self) -> int:
        return sum(self.alive.values())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(out):
            if isinstance(tensor, Tensor):
                storage = tensor.untyped_storage()
                if storage not in self._seen:
                    self._next += 1
                    self._seen[storage] = self._next
                    self.alive[self._next] = storage.nbytes()
                    weakref.finalize(storage, self.alive.pop, self._next)
        return out


class Tied(nn.Module):
    """Word vectors that serve as the head's weight too."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(100, 16)
        self.head = nn.Linear(16, 100, bias=False)
        self.head.weight = self.words.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.words((x.abs() * 10).long().clamp(max=99)))


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.inner = kind(8, 12, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x)[0]


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(8, 8), nn.GELU()) for _ in range(3))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            # the random state that it would save is made below the dispatcher, where the counter is blind
            x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
        return x


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1)
        self.norm = nn.BatchNorm2d(3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.norm(self.second(torch.relu_(self.first(x)))))


class Attention(nn.Module):
    """Written out, with a mask made in forward and the weights returned nowhere."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        mask = torch.ones(x.shape[1], x.shape[1], device=x.device).tril().bool()
        weights = (q @ k.transpose(-1, -2)).masked_fill(~mask, float("-inf")).softmax(-1)
        return self.out(torch.dropout(weights, 0.1, self.training) @ v)


MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "perceptron": (
        lambda: nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(), nn.Linear(32, 4)),
        (4, 8),
    ),
    "in place": (lambda: nn.Sequential(nn.Linear(8, 32), nn.ReLU(inplace=True), nn.Linear(32, 4)), (4, 8)),
    "residual": (Residual, (2, 3, 8, 8)),
    "pooling": (lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2), nn.Flatten()), (2, 3, 8, 8)),
    "lstm": (lambda: Recurrent(nn.LSTM), (2, 5, 8)),
    "gru": (lambda: Recurrent(nn.GRU), (2, 5, 8)),
    "transformer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), (2, 5, 8)),
    "attention": (Attention, (2, 5, 8)),
    "tied": (Tied, (2, 5)),
    "checkpointed": (Checkpointed, (4, 8)),
}
