"""Every tensor, module and optimizer alive in this process, found without looking at every object each time.

Python's collector lists what it tracks, 180,000 objects after `import torch`: some 40 ms to walk. New objects
are in its youngest generation until a collection moves them, and a callback is told before each. So after one
full walk it is enough to look at the young (some 700) before they move, and again when asked.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Iterable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

T = TypeVar("T")


class Census:
    """Weak references to what was found. Parameters have none: `swap_tensors` refuses tensors with one.

    They are reached through the modules, optimizers and graphs that hold them.
    """

    def __init__(self) -> None:
        self._tensors: dict[int, weakref.ref[Tensor]] = {}
        self._modules: dict[int, weakref.ref[nn.Module]] = {}
        self._optimizers: dict[int, weakref.ref[torch.optim.Optimizer]] = {}
        self._places: dict[type, dict[int, Any] | None] = {}  # where things of a type go; None: not ours
        self._users = 0
        self._lock = threading.RLock()

    def open(self) -> None:
        """Begin to follow what is made; counts its users. The first walks over every object there is."""
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._scan(gc.get_objects())
                gc.callbacks.append(self._collecting)

    def close(self) -> None:
        """The last user goes: forget everything and leave no callback behind."""
        with self._lock:
            self._users -= 1
            if not self._users:
                gc.callbacks.remove(self._collecting)
                for table in (self._tensors, self._modules, self._optimizers, self._places):
                    table.clear()

    def refresh(self) -> None:
        """Look at what was made since the last collection."""
        self._scan(gc.get_objects(generation=0) if _HAS_GENERATIONS else gc.get_objects())

    def tensors(self) -> list[Tensor]:
        """Every tensor alive that is no `nn.Parameter`."""
        return _alive(self._tensors)

    def modules(self) -> list[nn.Module]:
        return _alive(self._modules)

    def optimizers(self) -> list[torch.optim.Optimizer]:
        return _alive(self._optimizers)

    def _collecting(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            self._scan(gc.get_objects(generation=0) if _HAS_GENERATIONS else gc.get_objects())

    def _scan(self, objects: Iterable[object]) -> None:
        """Runs inside collections: makes weak references, calls nothing of torch's."""
        places, reference = self._places, weakref.ref
        for thing in objects:
            kind = type(thing)
            try:
                table = places[kind]
            except KeyError:
                table = places[kind] = self._place(kind)
            if table is not None:
                table[id(thing)] = reference(thing)

    def _place(self, kind: type) -> dict[int, Any] | None:
        bases = type.mro(kind) if kind is type else kind.__mro__
        if Tensor in bases:
            wrapper = hasattr(kind, "__tensor_flatten__") or kind.__name__ == "FakeTensor"
            return None if nn.Parameter in bases or wrapper else self._tensors
        if nn.Module in bases:
            return self._modules
        return self._optimizers if torch.optim.Optimizer in bases else None


# a build of Python without its global lock has one generation only
_HAS_GENERATIONS = getattr(sys, "_is_gil_enabled", lambda: True)()


def _alive(table: dict[int, weakref.ref[T]]) -> list[T]:
    """What is still there; the rest is forgotten."""
    references = list(table.values())  # without the pairs, of which each would be an object to collect
    things = [thing for reference in references if (thing := reference()) is not None]
    if len(things) < len(references):
        for key in [key for key, reference in list(table.items()) if reference() is None]:
            if (reference := table.get(key)) is not None and reference() is None:
                del table[key]
    return things


CENSUS = Census()
