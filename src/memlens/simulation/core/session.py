"""One simulation: the parts that make a GPU that is not there, and the trace they write."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from memlens.allocator import AllocatorConfig, CachingAllocator
from memlens.answers import Answer
from memlens.devices import Gpu
from memlens.model import Assumption, Category, Event, Mark, Site, Trace
from memlens.simulation.core.attribution import Attribution
from memlens.simulation.core.known_values import Values
from memlens.simulation.core.ledger import CUDA, HOST, Ledger
from memlens.simulation.core.phases import Phases
from memlens.simulation.core.recorded_streams import RecordedStreams
from memlens.simulation.core.sparse import is_sparse, parts_of
from memlens.simulation.core.streams import Streams
from memlens.simulation.core.tensors_in import tensors_in
from memlens.units import format_bytes

# a tensor on the host up to this size is real, so that shapes computed on the host just work
REAL_HOST_BYTES = 1 << 20


class _Here(threading.local):
    """What is set for the code of one thread."""

    def __init__(self) -> None:
        self.target: str | None = None


class Simulation(Answer):
    """What `memlens.simulate()` gives: the trace so far, the allocator, and ways to annotate."""

    def __init__(
        self, gpu: Gpu, config: AllocatorConfig, capacity_bytes: int | None, automatic_phases: bool = True
    ) -> None:
        self.gpu = gpu
        self.events: list[Event] = []
        self.allocator = CachingAllocator(config, capacity_bytes, total_bytes=gpu.memory_bytes)
        self.ledger = Ledger(self.allocator, self.events)
        self.attribution = Attribution()
        self.values = Values(self.ledger, self.site, self.assume)
        self.phases = Phases(self, automatic_phases)
        self.trace = Trace(
            "predicted",
            self.events,
            gpu.device(),
        )
        self.operators = 0
        self.alloc_conf: str | None = None  # what the allocator was set to, by whoever did
        self.watch: Callable[[Any, Any, Any, Any], None] | None = None  # (operator, args, kwargs, outputs)
        self._here = _Here()
        self._streams = Streams()
        self.phase = "build"
        self.step = 0
        self.thread = threading.get_ident()
        # cuBLAS' handles, by (thread, in backward, stream), each with what frees its workspace
        self._handles: dict[tuple[int, bool, int], Callable[[], None]] = {}
        self.notes: dict[str, Any] = {}  # what a rule keeps for the length of the simulation
        self.recorded = RecordedStreams(self.ledger, self.assume)
        self.at_end: list[Callable[[], None]] = [
            self.recorded.settle
        ]  # run once, when the simulation has ended

    def headline(self) -> str:
        """The card, and what is allocated and reserved on it."""
        held, most = self.allocator.allocated_bytes, self.trace.timeline().peak_allocated_bytes
        return (
            f"{self.gpu.name}, {format_bytes(held)} allocated now, {format_bytes(most)} at most, "
            f"{format_bytes(self.allocator.reserved_bytes)} reserved"
        )

    def to_rows(self) -> list[dict[str, Any]]:
        """A row for each allocation so far."""
        return self.trace.to_rows()

    @property
    def stream(self) -> int:
        """The stream that this thread's operators run on; in backward, the one that forward ran on."""
        return self._streams.current()

    @stream.setter
    def stream(self, stream: int) -> None:
        self._streams.use(stream)

    @property
    def target(self) -> str | None:
        """Where tensors that this thread makes from nothing live, where that was said."""
        return self._here.target

    @target.setter
    def target(self, target: str | None) -> None:
        self._here.target = target

    @property
    def elsewhere(self) -> bool:
        """Whether this is another thread than the one that began the simulation."""
        return threading.get_ident() != self.thread

    def configure(self, config: AllocatorConfig, text: str | None) -> None:
        """The allocator goes by these settings from now on; `text` is what said so."""
        self.alloc_conf = text
        self.allocator.configure(config)

    def finish(self) -> None:
        """Run what waits for the end."""
        while self.at_end:
            self.at_end[0]()
            self.at_end.pop(0)

    # annotations ------------------------------------------------------------------------------------

    def mark(self, phase: str, step: int | None = None) -> None:
        """A phase begins: build, inputs, forward, backward, optimizer, or a name of your own."""
        self.phase = phase
        if step is not None:
            self.step = step
        self.trace.marks.append(Mark(phase, len(self.events), self.step))

    def assume(self, assumption: Assumption) -> None:
        """Write into the result what was guessed."""
        if assumption not in self.trace.assumptions:
            self.trace.assumptions.append(assumption)

    def label(self, tensors: Tensor | Iterable[Any], category: Category, owner: Tensor | None = None) -> None:
        """Say what the storages of these tensors are for, and with `owner` whose parameter they serve."""
        with torch._C.DisableTorchFunction():
            for tensor in (tensors,) if isinstance(tensors, Tensor) else tensors:
                for part in parts_of(tensor) if is_sparse(tensor) else (tensor,):
                    entry = self.ledger.of(part) if isinstance(part, Tensor) else None
                    if entry is not None and entry.alloc is not None:
                        entry.alloc.category = category
                        entry.alloc.site = self.attribution.owned(
                            tensor if owner is None else owner, entry.alloc.site
                        )

    def label_module(self, module: nn.Module) -> None:
        """Parameters, buffers and gradients of a module and its children are what they are, and theirs."""
        self.attribution.name_modules(module)
        self.label(module.parameters(), Category.PARAMETER)
        self.label(module.buffers(), Category.BUFFER)
        self.label_gradients(module.parameters())

    def label_gradients(self, parameters: Iterable[Tensor]) -> None:
        with torch._C.DisableTorchFunction():
            for parameter in parameters:
                if parameter.grad is not None:
                    self.label(parameter.grad, Category.GRADIENT, parameter)

    def label_state(self, optimizer: torch.optim.Optimizer) -> None:
        """What an optimizer keeps for each parameter belongs to that parameter's module."""
        with torch._C.DisableTorchFunction():
            for parameter, state in optimizer.state.items():
                self.label(tensors_in(state), Category.OPTIMIZER_STATE, parameter)

    # what the modes ask -------------------------------------------------------------------------------

    def site(self, operator: str) -> Site:
        return self.attribution.site(operator, torch._C._current_autograd_node())

    def category(self) -> Category:
        """What a new storage is taken for until more is known."""
        if torch._C._current_autograd_node() is not None or self.phase in ("backward", "optimizer"):
            return Category.TEMPORARY
        if self.phase == "forward":
            return Category.ACTIVATION if torch.is_grad_enabled() else Category.TEMPORARY
        return Category.INPUT

    def adopt(self, tensor: Tensor, operator: str) -> None:
        """A rule made `tensor` as an output of `operator`: it lives on the device from now on."""
        node = torch._C._current_autograd_node()
        site = self.attribution.site(operator, node)
        sequence = -1 if node is None else node._sequence_nr()
        self.ledger.adopt(tensor.untyped_storage(), CUDA, self.category(), site, self.stream, sequence)

    def blas_workspace(self, operator: str) -> None:
        """cuBLAS's scratch memory, allocated when a thread first asks for a handle on a stream, then kept.

        Forward runs in the caller's thread and backward in autograd's: two handles in training, one in
        inference (counted in public snapshots).
        """
        key = (threading.get_ident(), torch._C._current_autograd_node() is not None, self.stream)
        if key in self._handles:
            return
        self._handles[key] = self.ledger.scratch(
            self.gpu.cublas_workspace_bytes, Category.WORKSPACE, self.site(operator), self.stream
        )

    def clear_blas_workspaces(self) -> None:
        """`torch._C._cuda_clearCublasWorkspaces`: all go, and come again when used."""
        for free in self._handles.values():
            free()
        self._handles.clear()

    # copies between host and device -------------------------------------------------------------------

    def factory_target(self) -> str:
        """Where a tensor made from nothing lives: CUDA, HOST or PLAIN.

        Where nobody said, C++ made it for a simulated tensor it works on, such as the scalar of `where`.
        """
        return self.target or CUDA

    def create_on(self, target: str | None) -> _Target:
        """A context in which tensors made from nothing belong to `target`."""
        return _Target(self, target)

    def is_cuda(self, tensor: Tensor) -> bool:
        return tensor.is_meta and self.ledger.is_cuda(tensor)

    def holds(self, storage: torch.UntypedStorage) -> bool:
        """Whether this storage is on the device."""
        entry = self.ledger.storages.get(storage._cdata)
        return entry is not None and entry.device is CUDA

    def is_host(self, tensor: Tensor) -> bool:
        """A host tensor that is too large to be real."""
        entry = self.ledger.of(tensor) if tensor.is_meta else None
        return entry is not None and entry.device is HOST

    def upload(self, tensor: Tensor, **to: Any) -> Tensor:
        """A copy on the device of a host tensor, differentiable."""
        with self.create_on(CUDA):
            copy: Tensor = torch.ops.aten._to_copy.default(tensor, device=torch.device("meta"), **to)
        if not tensor.is_meta and copy.dtype == tensor.dtype:
            self.values.remember(copy, tensor)
        return copy

    def download(self, tensor: Tensor, **to: Any) -> Tensor:
        """A host copy of a device tensor: real with stand-in values if small, without data if large."""
        self.recorded.wait()
        if tensor.numel() * tensor.element_size() <= REAL_HOST_BYTES:
            small: Tensor = torch.ops.aten._to_copy.default(tensor, device=torch.device("cpu"), **to)
            return small
        with self.create_on(HOST):
            large: Tensor = torch.ops.aten._to_copy.default(tensor, device=torch.device("meta"), **to)
            return large


class _Target:
    """Sets where tensors made from nothing live, and puts it back."""

    __slots__ = ("before", "sim", "target")

    def __init__(self, sim: Simulation, target: str | None) -> None:
        self.sim, self.target = sim, target

    def __enter__(self) -> None:
        self.before = self.sim.target
        self.sim.target = self.target

    def __exit__(self, *exc: object) -> None:
        self.sim.target = self.before
