"""`torch.save` and `torch.load` around tensors that have no data.

What is saved is remembered, without memory; the file gets a token by which a later load finds it, and the
size that the real one would have. A file that was there before is left as it is. Loading puts on the
simulated device what would be put on the real one.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from memlens.errors import UsageError
from memlens.model import Assumption
from memlens.simulation.core.ledger import CUDA, PLAIN
from memlens.simulation.torch_api.device import GPU, as_device

if TYPE_CHECKING:
    from memlens.simulation.torch_api.device import DeviceMode

_TOKEN = b"memlens: a checkpoint of a simulation, without data: "
_TOKEN_BYTES = len(_TOKEN) + 32


@dataclass(slots=True)
class _Storage:
    """A storage in a checkpoint: where it was, and its data where that is known."""

    nbytes: int
    location: str  # cuda:0, cpu or meta
    data: torch.UntypedStorage | None


@dataclass(slots=True)
class _Tensor:
    """A tensor in a checkpoint: a view of a storage."""

    storage: int
    offset: int
    shape: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    requires_grad: bool
    parameter: bool


@dataclass(slots=True)
class Checkpoint:
    """What `torch.save` was given, pickled with its tensors taken out."""

    pickled: bytes = b""
    tensors: list[_Tensor] = field(default_factory=list)
    storages: list[_Storage] = field(default_factory=list)
    has_simulated: bool = False


class _Writer(pickle.Pickler):
    """Pickles an object as torch does; of a tensor it keeps a description."""

    def __init__(self, mode: DeviceMode, file: io.BytesIO, checkpoint: Checkpoint) -> None:
        super().__init__(file, protocol=2)
        self.mode, self.checkpoint = mode, checkpoint
        self._storages: dict[int, int] = {}
        self._tensors: dict[int, tuple[Tensor, int]] = {}  # the tensor too, so that its id stays its own

    def persistent_id(self, obj: Any) -> int | None:
        if not isinstance(obj, Tensor):
            return None
        if id(obj) not in self._tensors:
            self._tensors[id(obj)] = obj, len(self.checkpoint.tensors)
            with torch._C.DisableTorchFunction():
                self.checkpoint.tensors.append(self._describe(obj))
        return self._tensors[id(obj)][1]

    def _describe(self, tensor: Tensor) -> _Tensor:
        storage = tensor.untyped_storage()
        number = self._storages.setdefault(storage._cdata, len(self.checkpoint.storages))
        if number == len(self.checkpoint.storages):
            self.checkpoint.storages.append(self._describe_storage(tensor, storage))
        return _Tensor(
            number, int(tensor.storage_offset()), tensor.shape, tensor.stride(), tensor.dtype,
            tensor.requires_grad, isinstance(tensor, nn.Parameter),
        )  # fmt: skip

    def _describe_storage(self, tensor: Tensor, storage: torch.UntypedStorage) -> _Storage:
        if not tensor.is_meta:
            return _Storage(storage.nbytes(), "cpu", storage)
        entry = self.mode.sim.ledger.of(tensor)
        if entry is None or entry.device is PLAIN:
            return _Storage(storage.nbytes(), "meta", None)
        self.checkpoint.has_simulated = True
        data = None if entry.value is None else entry.value.contiguous().untyped_storage()
        if data is not None and data.nbytes() != storage.nbytes():
            data = None
        return _Storage(storage.nbytes(), "cuda:0" if entry.device is CUDA else "cpu", data)


class _Reader(pickle.Unpickler):
    """Makes a checkpoint's object again, its tensors where `map_location` wants them."""

    def __init__(self, checkpoint: Checkpoint, map_location: Any) -> None:
        super().__init__(io.BytesIO(checkpoint.pickled))
        self.checkpoint, self.map_location = checkpoint, map_location
        self._storages: dict[int, Tensor] = {}
        self._tensors: dict[int, Tensor] = {}

    def persistent_load(self, number: int) -> Tensor:
        if number not in self._tensors:
            described = self.checkpoint.tensors[number]
            base = self._storage(described.storage)
            tensor = torch.empty(0, dtype=described.dtype, device=base.device)
            tensor.set_(base.untyped_storage(), described.offset, described.shape, described.stride)
            self._tensors[number] = (
                nn.Parameter(tensor, described.requires_grad)
                if described.parameter
                else tensor.requires_grad_(described.requires_grad)
            )
        return self._tensors[number]

    def _storage(self, number: int) -> Tensor:
        if number not in self._storages:
            stored = self.checkpoint.storages[number]
            device = self._device(stored)
            if stored.data is not None:
                data = torch.empty(0, dtype=torch.uint8).set_(stored.data)
                self._storages[number] = data.clone().to(device)
            else:
                self._storages[number] = torch.zeros(stored.nbytes, dtype=torch.uint8, device=device)
        return self._storages[number]

    def _device(self, stored: _Storage) -> torch.device:
        if callable(self.map_location):
            chosen = self.map_location(torch.empty(0).untyped_storage(), stored.location)
            where = stored.location if chosen is None else "cuda" if chosen.device.type == "meta" else "cpu"
            return torch.device(where)
        if stored.location == "meta":
            return torch.device("meta")
        return torch.device(_target(self.map_location, stored.location))


class Checkpoints:
    """Those of one simulation: by the path they were saved to, or by the token in their file."""

    def __init__(self, mode: DeviceMode) -> None:
        self.mode = mode
        self.by_token: dict[bytes, Checkpoint] = {}
        self.by_path: dict[str, Checkpoint] = {}

    def written(self, obj: Any) -> Checkpoint | None:
        """`obj` as a checkpoint if it holds simulated tensors; else it is torch's to save."""
        checkpoint, file = Checkpoint(), io.BytesIO()
        try:
            _Writer(self.mode, file, checkpoint).dump(obj)
        except (pickle.PicklingError, TypeError, AttributeError):
            if _holds_simulated(self.mode, obj):
                raise
            return None
        if not checkpoint.has_simulated:
            return None
        checkpoint.pickled = file.getvalue()
        for stored in checkpoint.storages:
            if stored.data is not None:  # what the program does to it from now on is not saved
                stored.data = stored.data.clone()
        return checkpoint

    def save(self, checkpoint: Checkpoint, f: Any) -> None:
        """Remember it under its file, and write a token where nothing is overwritten."""
        token = _TOKEN + uuid.uuid4().hex.encode()
        self.by_token[token] = checkpoint
        if not isinstance(f, (str, os.PathLike)):
            f.write(token)
            return
        path = os.path.abspath(os.fspath(f))
        if os.path.exists(path) and path not in self.by_path:
            where = self.mode.sim.site("save").where or "an unknown line"
            what = f"torch.save at {where} left {path} as it was"
            self.mode.sim.assume(Assumption(what, "simulated tensors have shapes and no data"))
            self.by_path[path] = checkpoint
            return
        if path not in self.by_path:
            self.mode.sim.at_end.append(lambda: _remove(path))
        self.by_path[path] = checkpoint
        with open(path, "wb") as file:
            file.write(token)
            file.truncate(max(_TOKEN_BYTES, sum(stored.nbytes for stored in checkpoint.storages)))

    def find(self, f: Any) -> Checkpoint | None:
        """What was saved under this path or in this file."""
        if isinstance(f, (str, os.PathLike)):
            path = os.path.abspath(os.fspath(f))
            if path in self.by_path:
                return self.by_path[path]
            with contextlib.suppress(OSError), open(path, "rb") as file:
                return self.by_token.get(file.read(_TOKEN_BYTES))
            return None
        if not (hasattr(f, "tell") and hasattr(f, "seek")):
            return None
        place = f.tell()
        head = f.read(_TOKEN_BYTES)
        f.seek(place)
        return self.by_token.get(head)


def _remove(path: str) -> None:
    """At the end, if it is still the token: nothing of a simulation stays on disk."""
    with contextlib.suppress(OSError):
        with open(path, "rb") as file:
            ours = file.read(len(_TOKEN)) == _TOKEN
        if ours:
            os.unlink(path)


def replacements(mode: DeviceMode) -> dict[str, Any]:
    """`torch.save` and `torch.load`, under both of their names."""
    save, load = torch.serialization.save, torch.serialization.load
    checkpoints = Checkpoints(mode)

    def save_simulated(obj: Any, f: Any, *args: Any, **kwargs: Any) -> None:
        storage = getattr(obj, "_untyped_storage", obj)
        is_storage = isinstance(storage, torch.UntypedStorage)  # so pickle saves a tensor's data
        if is_storage and storage.device.type == "meta":
            raise UsageError(
                "a simulated tensor was pickled, and it has no data",
                hint="pickle outside the simulation, or save with torch.save, which writes shapes only",
            )
        checkpoint = None if is_storage else checkpoints.written(obj)
        if checkpoint is not None:
            checkpoints.save(checkpoint, f)
            return
        if isinstance(f, (str, os.PathLike)):
            checkpoints.by_path.pop(os.path.abspath(os.fspath(f)), None)
        save(obj, f, *args, **kwargs)

    def load_simulated(f: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
        checkpoint = checkpoints.find(f)
        if checkpoint is not None:
            return _Reader(checkpoint, map_location).load()
        bound_for_device: set[int] = set()

        def place(storage: Any, location: str) -> Any:
            if callable(map_location):
                chosen = map_location(storage, location)
                if chosen is not None and not mode.sim.holds(chosen):
                    return chosen
                target = _target(None, location) if chosen is None else "cuda"
            else:
                target = _target(map_location, location)
            if target == "cuda":
                bound_for_device.add(storage._cdata)
            return storage

        return _moved(mode, load(f, place, *args, **kwargs), bound_for_device)

    table = {"torch.serialization.save": save_simulated, "torch.serialization.load": load_simulated}
    if torch.save is save:  # else somebody looks after files already, and calls the one below it
        table |= {"torch.save": save_simulated, "torch.load": load_simulated}
    return table


def _target(map_location: Any, location: str) -> str:
    """The device type that `map_location` sends a storage from `location` to; meta was the device's."""
    if isinstance(map_location, dict):
        location = map_location.get(location, location)
    elif map_location is not None:
        return as_device(map_location).type
    return "cuda" if location.startswith(("cuda", "meta")) else "cpu"


def _holds_simulated(mode: DeviceMode, obj: Any) -> bool:
    leaves = _pytree.tree_leaves(obj)
    tensors = [t for m in leaves if isinstance(m, nn.Module) for t in (*m.parameters(), *m.buffers())]
    tensors += [t for t in leaves if isinstance(t, Tensor)]
    with torch._C.DisableTorchFunction():
        return any(mode.sim.is_cuda(t) or mode.sim.is_host(t) for t in tensors)


def _moved(mode: DeviceMode, loaded: Any, bound_for_device: set[int]) -> Any:
    """What was loaded, with the tensors over those storages on the device; shared ones stay shared."""
    done: dict[tuple[Any, ...], Tensor] = {}

    def move(tensor: Tensor) -> Tensor:
        with torch._C.DisableTorchFunction():
            storage = tensor.untyped_storage()
            if storage._cdata not in bound_for_device:
                return tensor
            key = (storage._cdata, tensor.storage_offset(), tensor.shape, tensor.stride())
            if tensor.is_meta:
                entry = mode.sim.ledger.of(tensor)
                if entry is None or entry.device is PLAIN:
                    mode.sim.ledger.adopt(storage, CUDA, site=mode.sim.site("load"))
                return tensor
            if key not in done:
                moved = mode.move(tensor.detach(), GPU)
                done[key] = (
                    nn.Parameter(moved, tensor.requires_grad)
                    if isinstance(tensor, nn.Parameter)
                    else moved.requires_grad_(tensor.requires_grad)
                )
            return done[key]

    def visit(leaf: Any) -> Any:
        if isinstance(leaf, nn.Module):
            return leaf._apply(move)
        return move(leaf) if isinstance(leaf, Tensor) else leaf

    return _pytree.tree_map(visit, loaded)
