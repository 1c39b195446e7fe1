"""The lives of storages: which exist on the simulated device, since when, and what they hold.

A tensor of the simulated device is a `meta` tensor whose storage stands in the ledger. A storage is known by
the address of its C++ object and dies, here as in reality, when Python or autograd drops the last reference:
a weak reference then fires and the bytes go back to the simulated allocator.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from memlens.allocator import Block, CachingAllocator, DeviceFull, message
from memlens.devices.oom_observers import device_is_full
from memlens.model import NOWHERE, Alloc, Category, Event, Free, OutOfMemory, SegmentAlloc, SegmentFree, Site
from memlens.simulation.core.sparse import is_sparse, parts_of

if TYPE_CHECKING:
    from torch import Tensor, UntypedStorage

CUDA = "cuda"
HOST = "cpu"
PLAIN = "meta"  # meta tensors that the user asked for by name: known, and without memory


class Storage(weakref.ref):  # type: ignore[type-arg]
    """One live storage: the weak reference itself carries what the ledger knows of it."""

    __slots__ = ("alloc", "block", "device", "key", "nbytes", "node", "pinned", "value")

    key: int
    device: str  # CUDA, HOST or PLAIN
    nbytes: int
    alloc: Alloc | None
    block: Block | None
    node: int  # sequence number of the autograd node that made it in backward, else -1
    pinned: bool
    value: Tensor | None  # the real data of a small tensor that came from the host, while it is unchanged


class Ledger:
    """Every storage of the simulated device, backed by the simulated allocator; writes the trace's events."""

    def __init__(self, allocator: CachingAllocator, events: list[Event]) -> None:
        self.allocator = allocator
        self.events = events
        self.storages: dict[int, Storage] = {}
        self.host_bytes = 0
        self.peak_host_bytes = 0
        self.last_id = 0  # of the newest allocation
        self.closed = False
        self.before_first: Callable[[], None] | None = None  # called once, before anything is allocated
        self.lock = threading.RLock()  # one operator at a time, and what dies meanwhile in other threads
        allocator.on_segment = self._segment

    def of(self, tensor: Tensor) -> Storage | None:
        """What the ledger knows of this tensor's storage; None for real ones and meta ones made outside."""
        try:
            return self.storages.get(tensor.untyped_storage()._cdata)
        except NotImplementedError:  # torch.func's wrappers and sparse tensors have no storage of their own
            if is_sparse(tensor):
                return self.of(parts_of(tensor)[-1])
            wrapped = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
            return self.of(torch._C._functorch.get_unwrapped(tensor)) if wrapped else None

    def is_cuda(self, tensor: Tensor) -> bool:
        entry = self.of(tensor)
        return entry is not None and entry.device is CUDA

    def adopt(
        self,
        storage: UntypedStorage,
        device: str,
        category: Category = Category.UNKNOWN,
        site: Site = NOWHERE,
        stream: int = 0,
        node: int = -1,
    ) -> Storage:
        """A new storage came to life on `device`."""
        nbytes = storage.nbytes()
        entry = Storage(storage, self._gone)
        entry.key = storage._cdata
        entry.device = device
        entry.nbytes = nbytes
        entry.alloc = entry.block = entry.value = None
        entry.pinned = False
        entry.node = node
        if device is CUDA:
            self._place(entry, category, site, stream)
        elif device is HOST:
            self.host_bytes += nbytes
            self.peak_host_bytes = max(self.peak_host_bytes, self.host_bytes)
        self.storages[entry.key] = entry
        return entry

    def resized(self, entry: Storage, nbytes: int, site: Site, stream: int) -> None:
        """A storage was resized in place (`resize_`): the old bytes go, new ones come."""
        if nbytes == entry.nbytes:
            return
        category = entry.alloc.category if entry.alloc else Category.UNKNOWN
        if entry.device is CUDA:
            self._release(entry)
            entry.nbytes = nbytes
            self._place(entry, category, site, stream)
            return
        if entry.device is HOST:
            self.host_bytes += nbytes - entry.nbytes
        entry.nbytes = nbytes

    def scratch(self, nbytes: int, category: Category, site: Site, stream: int) -> Callable[[], None]:
        """Allocate bytes that belong to no tensor (a kernel's workspace); the returned call frees them."""
        if nbytes <= 0:
            return _nothing
        block, alloc = self._allocate(nbytes, category, site, stream)

        def free() -> None:
            self.allocator.free(block)
            self.events.append(Free(alloc.id))

        return free

    def close(self) -> None:
        """The simulation ended: what dies from now on is no longer its business."""
        self.closed = True
        self.storages.clear()

    def _allocate(self, nbytes: int, category: Category, site: Site, stream: int) -> tuple[Block, Alloc]:
        if self.before_first is not None:
            before_first, self.before_first = self.before_first, None
            before_first()
        try:
            block = self.allocator.malloc(nbytes, stream)
        except DeviceFull as full:
            self.events.append(OutOfMemory(nbytes, full.free_bytes, site))
            device_is_full(0, nbytes, full.total_bytes, full.free_bytes)
            raise torch.OutOfMemoryError(message(full)) from None
        self.last_id += 1
        alloc = Alloc(self.last_id, block.size, category, site, stream, nbytes, block.address)
        self.events.append(alloc)
        return block, alloc

    def _place(self, entry: Storage, category: Category, site: Site, stream: int) -> None:
        if entry.nbytes:
            entry.block, entry.alloc = self._allocate(entry.nbytes, category, site, stream)

    def _release(self, entry: Storage) -> None:
        if entry.block is not None and entry.alloc is not None:
            self.allocator.free(entry.block)
            self.events.append(Free(entry.alloc.id))
            entry.block = entry.alloc = None

    def _gone(self, entry: Storage) -> None:
        with self.lock:
            if self.closed or self.storages.pop(entry.key, None) is None:
                return
            if entry.device is CUDA:
                self._release(entry)
            elif entry.device is HOST:
                self.host_bytes -= entry.nbytes

    def _segment(self, kind: str, address: int, nbytes: int, stream: int, small: bool) -> None:
        if kind in ("alloc", "map"):
            self.events.append(SegmentAlloc(address, nbytes, stream, small))
        else:
            self.events.append(SegmentFree(address, nbytes))


def _nothing() -> None:
    """What there is to free when nothing was allocated."""
