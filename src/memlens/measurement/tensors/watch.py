"""The tensors of one device: which are alive, which came and went since the last time somebody asked."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import compress
from typing import Any, NamedTuple

import torch
from torch import Tensor

from memlens.devices import simulated
from memlens.measurement.tensors import autograd_graph
from memlens.measurement.tensors import names as names
from memlens.measurement.tensors.census import CENSUS
from memlens.model import Category
from memlens.model.tensors import LiveTensor

# of a tensor's storage, which need not become an object for it
address = torch._C._storage_address  # type: ignore[attr-defined]
size_of = torch.UntypedStorage.nbytes
# getters, called without looking them up
shape_of = torch._C.TensorBase.shape.__get__  # type: ignore[attr-defined]
requires_grad = torch._C.TensorBase.requires_grad.__get__  # type: ignore[attr-defined]


class Record(weakref.ref):  # type: ignore[type-arg]
    """A weak reference to a storage that tells what a `LiveTensor` does: one object, as there are thousands.

    `here`: it is on the device that is watched. `whole`: a tensor was seen that shows all of it. `said`:
    somebody said what it is for. Of one that is both, or elsewhere, nothing is to be learned any more.
    """

    __slots__ = ("bytes", "category", "dtype", "here", "key", "name", "said", "shape", "view", "whole")

    key: int
    bytes: int
    shape: tuple[int, ...]
    dtype: str
    category: Category
    name: str
    view: bool
    here: bool
    said: bool
    whole: bool

    def say(self, category: Category, name: str) -> None:
        """What it is for, unless that was said before."""
        if not self.said:
            self.category, self.name = category, name
            self.said = category is not Category.UNKNOWN

    def to_live_tensor(self) -> LiveTensor:
        """What is known now, apart from this."""
        return LiveTensor(self.key, self.bytes, self.shape, self.dtype, self.category, self.name, self.view)


class Taken(NamedTuple):
    """What one look found."""

    came: list[Record]
    gone: list[Record]
    live: list[Record]

    @property
    def bytes(self) -> int:
        return sum(record.bytes for record in self.live)


class TensorWatch:
    """Follows the storages of `device` (a torch.device) from its making to its `close`.

    Storages are counted once. When one dies its record leaves `_known`, so that an address that is used again
    is another storage. Tensors that only an autograd graph keeps are found by walking the graph from the
    tensors that are alive. What nothing of this reaches (buckets of C++ code, a parameter that no module and
    no optimizer holds) is not seen.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._known: dict[int, Record] = {}  # by address: exactly those alive
        self._dead: list[Record] = []  # since the last look
        self._new: list[Record] = []
        self._died = _undertaker(self._known, self._dead)
        self._graphs = autograd_graph.Graphs()
        CENSUS.open()
        self.close = weakref.finalize(self, CENSUS.close)
        self.close.atexit = False

    def take(self) -> Taken:
        """Look now. With 10,000 live tensors 5 to 13 ms, and up to 33 when thousands came and went."""
        with _no_collections():
            CENSUS.refresh()
            self._new = []
            # a mode of somebody's, or a subclass, would be asked at every attribute
            with torch._C.DisableTorchFunction():
                self._look()
            live, gone = self._measure(), self._buried()
        return Taken([record for record in self._new if record.here], gone, live)

    def _look(self) -> None:
        optimizers = CENSUS.optimizers()
        paths = names.Paths(CENSUS.modules())
        members = names.members(paths.modules)
        tensors = [member[0] for member in members]
        for number, record in self._open(tensors):
            _, category, module, key = members[number]
            record.say(category, paths.of(module, key))
        gradients = [tensor.grad if tensor.is_leaf else None for tensor in tensors]
        for number, record in self._open(gradients):
            _, _, module, key = members[number]
            record.say(Category.GRADIENT, f"{paths.of(module, key)}.grad")
        owned = set(map(id, tensors))
        for tensor, name in names.optimized(optimizers):
            if id(tensor) not in owned:
                self._own(tensor, Category.PARAMETER, name)
        ends = self._held()
        if optimizers and self._new:
            self._name_states(optimizers, members, paths)
        self._walk(ends, owned)

    def _name_states(
        self, optimizers: list[torch.optim.Optimizer], members: list[names.Member], paths: names.Paths
    ) -> None:
        states = names.states(optimizers)
        unnamed = list(self._open([state[0] for state in states]))
        if not unnamed:
            return
        called = {id(tensor): name for tensor, name in names.optimized(optimizers)}
        called |= {id(tensor): paths.of(module, key) for tensor, _, module, key in members}
        for number, record in unnamed:
            _, key, parameter = states[number]
            record.say(Category.OPTIMIZER_STATE, f"{key} of {called.get(id(parameter), 'a parameter')}")

    def _own(self, tensor: Tensor, category: Category, name: str) -> None:
        """A leaf outside every module, and its gradient."""
        title = f"{name}.grad" if name else ""
        for part, kind, called in ((tensor, category, name), (tensor.grad, Category.GRADIENT, title)):
            if part is not None and (record := self._seen(part)) is not None:
                record.say(kind, called)

    def _held(self) -> list[tuple[Tensor, Any]]:
        """Every tensor that Python holds; returns the ends of autograd graphs, each with its node."""
        ends = []
        tensors = CENSUS.tensors()
        for tensor, record in zip(tensors, self._records(tensors), strict=True):
            if record is None or not record.whole:
                self._seen(tensor)
        for tensor in compress(tensors, map(requires_grad, tensors)):
            node = tensor.grad_fn
            if node is not None:
                ends.append((tensor, node))
            elif tensor.grad is not None:
                self._own(tensor, Category.UNKNOWN, "")
        return ends

    def _walk(self, ends: list[tuple[Tensor, Any]], owned: Container[int]) -> None:
        """What the graphs keep: activations, also those that Python no longer has a name for."""
        kept = self._graphs.saved(ends)
        for leaf in kept.leaves:
            if id(leaf) not in owned:
                is_parameter = isinstance(leaf, torch.nn.Parameter)
                self._own(leaf, Category.PARAMETER if is_parameter else Category.UNKNOWN, "")
                # the census knows no parameters: the graph alone leads to this one's later gradients
                self._graphs.again = self._graphs.again or is_parameter
        for number, record in self._open(kept.tensors):
            record.say(Category.ACTIVATION, f"saved by {kept.nodes[number]}")

    def _records(self, tensors: Sequence[Tensor | None]) -> list[Record | None]:
        """The record of each tensor, None where there is none yet."""
        known = self._known.get
        try:
            return list(map(known, map(address, tensors)))
        except (RuntimeError, TypeError):
            pass
        records: list[Record | None] = []
        for tensor in tensors:
            try:
                records.append(None if tensor is None else known(address(tensor)))
            except RuntimeError:  # sparse ones have no storage of their own
                records.append(None)
        return records

    def _open(self, tensors: Sequence[Tensor | None]) -> Iterator[tuple[int, Record]]:
        """Those records of which nobody said what they are for, each with its tensor's place in the list.

        This runs over every tensor there is: what was whole and named before is passed over in C.
        """
        for number, record in enumerate(self._records(tensors)):
            if record is None or not (record.said and record.whole):
                tensor = tensors[number]
                if tensor is not None and (record := self._seen(tensor)) is not None and not record.said:
                    yield number, record

    def _seen(self, tensor: Tensor) -> Record | None:
        """The record of one tensor, with what can be learned of it; None of one that is made of parts."""
        try:
            record = self._known.get(address(tensor))
        except RuntimeError:
            for part in _parts(tensor):
                self._seen(part)
            return None
        if record is None or not record.whole:
            record = self._see(tensor, tensor.untyped_storage())
        return record

    def _see(self, tensor: Tensor, storage: torch.UntypedStorage) -> Record:
        """The record of a tensor's storage, made if it is new, its shape bettered if this one shows more."""
        key = storage._cdata
        record = self._known.get(key)
        if record is None:
            record = self._known[key] = Record(storage, self._died)
            record.key, record.here = key, self._is_here(tensor)
            record.said = record.whole = record.view = not record.here
            record.category, record.name, record.bytes = Category.UNKNOWN, "", 0
            self._new.append(record)
            if record.here:
                self._describe(record, tensor, storage)
        elif not record.whole:
            self._describe(record, tensor, storage)
        return record

    def _describe(self, record: Record, tensor: Tensor, storage: torch.UntypedStorage) -> None:
        """Shape and dtype by the first tensor that was seen, then by one that shows all of the storage."""
        whole = tensor.nbytes == size_of(storage)
        if whole or not record.view:
            record.shape, record.dtype = _shape(tensor), _dtype(tensor.dtype)
        record.whole, record.view = whole, not whole

    def _is_here(self, tensor: Tensor) -> bool:
        """Whether it is on our device; of a tensor without data, a simulation knows."""
        where = simulated.device_of(tensor) if tensor.is_meta else tensor.device
        return bool(where == self.device)

    def _measure(self) -> list[Record]:
        """What lives on our device, with its size of now: storages can be resized."""
        here = []
        for record in list(self._known.values()):
            if record.here and (storage := record()) is not None:
                record.bytes = size_of(storage)
                here.append(record)
        return here

    def _buried(self) -> list[Record]:
        """What died on our device since the last look."""
        dead = self._dead[:]
        del self._dead[: len(dead)]
        return [record for record in dead if record.here]


def _undertaker(known: dict[int, Record], dead: list[Record]) -> Callable[[Record], None]:
    """What a storage's death calls, in any thread; it holds the two and not the watch."""

    def died(record: Record) -> None:
        if known.get(record.key) is record:
            del known[record.key]
            dead.append(record)

    return died


def _shape(tensor: Tensor) -> tuple[int, ...]:
    """Also of lazy parameters, which refuse to tell; nested tensors have none."""
    try:
        shape: tuple[int, ...] = shape_of(tensor)
        return shape
    except RuntimeError:
        return ()


# what a sparse tensor is made of, by the end of its layout's name
_PARTS = {
    "coo": ("_indices", "_values"),
    "csr": ("crow_indices", "col_indices", "values"),
    "bsr": ("crow_indices", "col_indices", "values"),
    "csc": ("ccol_indices", "row_indices", "values"),
    "bsc": ("ccol_indices", "row_indices", "values"),
}


def _parts(tensor: Tensor) -> list[Tensor]:
    """The tensors inside a sparse one, which has no storage of its own; nothing of any other."""
    names = _PARTS.get(str(tensor.layout)[-3:], ())
    if not names:
        return []
    plain = tensor.detach()  # asking for a part must not become part of a graph
    return [getattr(plain, name)() for name in names]


@cache
def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@contextmanager
def _no_collections() -> Iterator[None]:
    """What we make for a moment must not make Python collect: a full collection takes longer than a look."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
