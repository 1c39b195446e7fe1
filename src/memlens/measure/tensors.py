"""The tensors of one device: which are alive, which came and went since the last time somebody asked."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from memlens.devices import disguise
from memlens.measure import graph
from memlens.measure import tensor_names as names
from memlens.measure.census import CENSUS
from memlens.model import Category
from memlens.model.tensors import LiveTensor


class Taken(NamedTuple):
    """What one look found."""

    came: list[LiveTensor]
    gone: list[LiveTensor]
    live: list[LiveTensor]

    @property
    def bytes(self) -> int:
        return sum(tensor.bytes for tensor in self.live)


address = torch._C._storage_address  # of a tensor's storage, which need not become an object for it


class Record(weakref.ref):  # type: ignore[type-arg]
    """A weak reference to a storage, with what it holds; `live` is None for one of another device.

    `whole`: nothing is to be learned of it any more.
    """

    __slots__ = ("key", "live", "whole")

    key: int
    live: LiveTensor | None
    whole: bool


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
        self._graphs = graph.Graphs()
        CENSUS.open()
        self.close = weakref.finalize(self, CENSUS.close)
        self.close.atexit = False

    def take(self) -> Taken:
        """Look now. 10 to 20 ms with 10,000 live tensors."""
        with _no_collections():
            CENSUS.refresh()
            self._new = []
            # a mode of somebody's, or a subclass, would be asked at every attribute
            with torch._C.DisableTorchFunction():
                self._look()
            live, gone = self._measure(), self._buried()
        return Taken([record.live for record in self._new if record.live is not None], gone, live)

    def _look(self) -> None:
        optimizers = CENSUS.optimizers()
        paths = names.Paths(CENSUS.modules())
        owners: dict[int, tuple[torch.nn.Module, str]] = {}
        unnamed = self._unnamed
        for tensor, category, owner in names.members(paths.modules):
            owners[id(tensor)] = owner
            if (live := unnamed(tensor)) is not None:
                live.category, live.name = category, paths.of(*owner)
            if tensor.requires_grad and tensor.grad_fn is None:
                gradient = tensor.grad
                if gradient is not None and (live := unnamed(gradient)) is not None:
                    live.category, live.name = Category.GRADIENT, f"{paths.of(*owner)}.grad"
        loose = {}
        for tensor, name in names.optimized(optimizers):
            if id(tensor) not in owners:
                loose[id(tensor)] = name
                self._own(tensor, Category.PARAMETER, name)
        roots = self._held()
        if optimizers and self._new:
            for tensor, key, parameter in names.states(optimizers):
                if (live := self._unnamed(tensor)) is not None:
                    named = owners.get(id(parameter))
                    name = paths.of(*named) if named else loose.get(id(parameter), "a parameter")
                    live.category, live.name = Category.OPTIMIZER_STATE, f"{key} of {name}"
        self._walk(roots, owners)

    def _own(self, tensor: Tensor, category: Category, name: str) -> None:
        """A leaf outside every module, and its gradient."""
        for part, kind, title in (
            (tensor, category, name),
            (tensor.grad, Category.GRADIENT, f"{name}.grad" if name else ""),
        ):
            if part is not None and (live := self._unnamed(part)) is not None:
                live.category, live.name = kind, title

    def _held(self) -> list[Any]:
        """Every tensor that Python holds; returns the ends of the autograd graphs."""
        roots = []
        known = self._known.get
        for tensor in CENSUS.tensors():  # the loop that runs most: what `_unnamed` does, without the call
            try:
                record = known(address(tensor))
            except (RuntimeError, NotImplementedError):
                record = None
            if record is None or not record.whole:
                self._unnamed(tensor)
            if tensor.requires_grad:
                node = tensor.grad_fn
                if node is not None:
                    roots.append(node)
                elif tensor.grad is not None:
                    self._own(tensor, Category.UNKNOWN, "")
        return roots

    def _walk(self, roots: list[Any], owned: Container[int]) -> None:
        """What the graphs keep: activations, also those that Python no longer has a name for."""
        unnamed = self._unnamed
        for tensor, how in self._graphs.saved(roots):
            if how is graph.LEAF:
                if id(tensor) not in owned:
                    is_parameter = isinstance(tensor, torch.nn.Parameter)
                    self._own(tensor, Category.PARAMETER if is_parameter else Category.UNKNOWN, "")
            elif (live := unnamed(tensor)) is not None:
                live.category, live.name = Category.ACTIVATION, f"saved by {how}"

    def _unnamed(self, tensor: Tensor) -> LiveTensor | None:
        """What is known of a tensor on our device of which nobody said yet what it is for.

        Called for every tensor there is: what was whole before is left at once.
        """
        try:
            record = self._known.get(address(tensor))
        except (RuntimeError, NotImplementedError):
            for part in _parts(tensor):
                self._unnamed(part)
            return None
        if record is None or not record.whole:
            record = self._see(tensor, tensor.untyped_storage())
        live = record.live
        return live if live is not None and live.category is Category.UNKNOWN else None

    def _see(self, tensor: Tensor, storage: torch.UntypedStorage) -> Record:
        """The record of a tensor's storage, made if it is new, its shape bettered if this one shows more."""
        key = storage._cdata
        record = self._known.get(key)
        if record is None:
            record = Record(storage, self._died)
            record.key, record.live, record.whole = key, None, True
            if self._is_here(tensor):
                record.live, record.whole = LiveTensor(key, 0, _shape(tensor), _dtype(tensor)), False
            self._known[key] = record
            self._new.append(record)
        if not record.whole and (live := record.live) is not None:
            record.whole = tensor.numel() * tensor.element_size() == storage.nbytes()
            if record.whole:
                live.shape, live.dtype = _shape(tensor), _dtype(tensor)
            live.view = not record.whole
        return record

    def _is_here(self, tensor: Tensor) -> bool:
        """Whether it is on our device; of a tensor without data, a simulation knows."""
        where = disguise.device_of(tensor) if tensor.is_meta else tensor.device
        return bool(where == self.device)

    def _measure(self) -> list[LiveTensor]:
        """What lives on our device, with its size of now: storages can be resized."""
        here = []
        for record in list(self._known.values()):
            live, storage = record.live, record()
            if live is not None and storage is not None:
                live.bytes = storage.nbytes()
                here.append(live)
        return here

    def _buried(self) -> list[LiveTensor]:
        """What died on our device since the last look."""
        dead = self._dead[:]
        del self._dead[: len(dead)]
        return [record.live for record in dead if record.live is not None]


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
        return tuple(torch._C.TensorBase.shape.__get__(tensor))
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


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


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
