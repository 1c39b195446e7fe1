"""The tensors of one device: which are alive, which came and went since the last time somebody asked."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Container, Iterator
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


class Record:
    """One storage as it is known: a weak reference to it, and what it holds; `live` is None elsewhere."""

    __slots__ = ("live", "ref", "whole")

    def __init__(self, storage: torch.UntypedStorage, live: LiveTensor | None) -> None:
        self.ref = weakref.ref(storage)
        self.live = live
        self.whole = live is None


class TensorWatch:
    """Follows the storages of `device` (a torch.device) from its making to its `close`.

    Storages are counted once; a weak reference to each tells when it dies, so that an address used again is
    another storage. Tensors that only an autograd graph keeps are found by walking the graph from the
    tensors that are alive. What nothing of this reaches (buckets of C++ code, a parameter that no module and
    no optimizer holds) is not seen.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._known: dict[int, Record] = {}
        self._new: list[Record] = []
        self._replaced: list[LiveTensor] = []
        self._graphs = graph.Graphs()
        CENSUS.open()
        self.close = weakref.finalize(self, CENSUS.close)
        self.close.atexit = False

    def take(self) -> Taken:
        """Look now. 10 to 20 ms with 10,000 live tensors."""
        with _no_collections():
            CENSUS.refresh()
            self._new, self._replaced = [], []
            # a mode of somebody's, or a subclass, would be asked at every attribute
            with torch._C.DisableTorchFunction():
                self._look()
            gone = self._forget()
        came = [record.live for record in self._new if record.live is not None]
        return Taken(came, gone, [record.live for record in self._known.values() if record.live is not None])

    def _look(self) -> None:
        optimizers = CENSUS.optimizers()
        paths = names.Paths(CENSUS.modules())
        owners: dict[int, tuple[torch.nn.Module, str]] = {}
        for tensor, category, owner in names.members(paths.modules):
            owners[id(tensor)] = owner
            if (live := self._unnamed(tensor)) is not None:
                live.category, live.name = category, paths.of(*owner)
            if tensor.requires_grad and tensor.grad_fn is None and (gradient := tensor.grad) is not None:
                live = self._unnamed(gradient)
                if live is not None:
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
                storage = tensor.untyped_storage()
            except (RuntimeError, NotImplementedError):
                self._unnamed(tensor)
                continue
            record = known(storage._cdata)
            if record is None or record.ref() is not storage or not record.whole:
                self._see(tensor, storage)
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
            storage = tensor.untyped_storage()
        except (RuntimeError, NotImplementedError):
            for part in _parts(tensor):
                self._unnamed(part)
            return None
        record = self._known.get(storage._cdata)
        if record is None or record.ref() is not storage or not record.whole:
            record = self._see(tensor, storage)
        live = record.live
        return live if live is not None and live.category is Category.UNKNOWN else None

    def _see(self, tensor: Tensor, storage: torch.UntypedStorage) -> Record:
        """The record of a tensor's storage, made if it is new, its shape bettered if this one shows more."""
        key = storage._cdata
        record = self._known.get(key)
        if record is None or record.ref() is not storage:
            live = LiveTensor(key, 0, _shape(tensor), _dtype(tensor)) if self._is_here(tensor) else None
            if record is not None and record.live is not None:  # died, and its address serves again
                self._replaced.append(record.live)
            record = self._known[key] = Record(storage, live)
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

    def _forget(self) -> list[LiveTensor]:
        """Drop the storages that died, measure the others; returns what was lost of our device."""
        dead = []
        for key, record in self._known.items():
            storage = record.ref()
            if storage is None:
                dead.append(key)
            elif record.live is not None:
                record.live.bytes = storage.nbytes()
        lost = [live for key in dead if (live := self._known.pop(key).live) is not None]
        return lost + self._replaced


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
