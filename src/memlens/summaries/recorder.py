"""What happened in a forward, as a tree: modules as they were called, operators under whoever called them.

Every call is a node. Operators that torch.nn's own layers call belong to the layer; all others are nodes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from memlens.model import Alloc
from memlens.simulation.core.tensors_in import tensors_in
from memlens.summaries.macs import count_macs
from memlens.summaries.nodes import Call, Node, Output, Saved, Spec

if TYPE_CHECKING:
    from memlens.simulation.core.ledger import Storage
    from memlens.simulation.core.session import Simulation

_no_modes = torch._C.DisableTorchFunction


def spec(tensor: Tensor) -> Spec:
    return tuple(tensor.shape), tensor.dtype


class Recorder:
    """Grows the tree while a model runs. `top` is the node whose code runs now."""

    def __init__(self, sim: Simulation, model: nn.Module, batch: list[Tensor]) -> None:
        self.sim = sim
        self.model = model
        self.paths = {id(module): path for path, module in model.named_modules()}
        self.top = self.base = Node("module", "", "", -1)
        self.calls: list[Call] = []
        self.saved: dict[int, Saved] = {}  # by the identity of the storage's entry, or of a host storage
        self.cast_weights: dict[int, tuple[int, int]] = {}  # copies by autocast: key -> allocation, bytes
        self.used: set[int] = set()  # ids of parameters that operators outside torch.nn's layers took
        self.owners: dict[int, Node] = {}  # id of an allocation -> who made it
        with _no_modes():
            self.weights = {p.untyped_storage()._cdata for p in model.parameters()}
            self._buffers = {b.untyped_storage()._cdata for b in model.buffers()}
            self._batch = {tensor.untyped_storage()._cdata for tensor in batch}
        # what exists already is no output; the entries are kept so that their ids are not reused
        self._claimed: dict[int, tuple[Storage, Node | None]] = {
            id(entry): (entry, None) for entry in sim.ledger.storages.values()
        }
        self._host: list[Any] = []
        self.alive: dict[int, Storage] = {}  # when the forward had ended and its outputs were dropped
        self.start = self._settled = len(sim.events)
        sim.watch = self.operator_ran

    @property
    def root(self) -> Node:
        return self.base.children[0]

    def nothing_ran(self) -> None:
        """There is no forward to watch: the tree is the model, and all below it are modules of 0 calls."""
        self.base.children.append(
            Node("module", "", type(self.model).__name__, 0, None, self.base, self.model)
        )

    # modules and functions begin and end -------------------------------------------------------------

    def begin_module(self, module: nn.Module, args: Any) -> None:
        with _no_modes():
            self.settle()
            inputs = tuple(spec(tensor) for tensor in tensors_in(args))
        parent, name = self.top, type(module).__name__
        path = self.paths.get(id(module))
        if path is None:
            path = f"{parent.path}.{name}" if parent.path else name
        key = (id(module), inputs)
        node = Node("module", path, name, parent.depth + 1, key, parent, module, _is_layer(module), 1, inputs)
        parent.children.append(node)
        self.top = node

    def end_module(self, module: nn.Module, args: Any, output: Any) -> None:
        node = self.top
        with _no_modes():
            self.settle()
            self._returned(node, output)
            takes_tensor = bool(args) and isinstance(args[0], Tensor)
            self.calls.append(Call(module, node, self._structure(output), takes_tensor))
        self.top = node.parent or self.base

    def begin_operator(self, name: str, args: Any, kwargs: Mapping[str, Any]) -> Node:
        with _no_modes():
            self.settle()
            tensors = list(tensors_in((args, kwargs)))
            inputs = tuple(spec(tensor) for tensor in tensors)
            self.used.update(id(t) for t in tensors if isinstance(t, nn.Parameter))
        parent = self.top
        path = f"{parent.path}/{name}"
        node = Node("operator", path, name, parent.depth + 1, (name, inputs), parent, None, True, 1, inputs)
        parent.children.append(node)
        self.top = node
        return node

    def end_operator(self, node: Node, output: Any = None) -> None:
        with _no_modes():
            self.settle()
            self._returned(node, output)
        self.top = node.parent or self.base

    def _structure(self, value: Any) -> Any:
        """`value` with every tensor replaced by its Output; what holds no tensor becomes None."""
        if isinstance(value, Tensor):
            entry = self._entry(value)
            return Output(*spec(value), None if entry is None else id(entry))
        if isinstance(value, Mapping):
            return {key: self._structure(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._structure(item) for item in value]
        return None

    def _returned(self, node: Node, output: Any) -> None:
        tensors = list(tensors_in(output))
        returned = tuple(spec(tensor) for tensor in tensors)
        if returned not in node.returns:
            node.returns.append(returned)
        for tensor in tensors:
            entry = self._entry(tensor)
            if entry is not None and id(entry) not in self._claimed:
                self._claimed[id(entry)] = entry, node
                node.output_bytes += entry.nbytes

    def _entry(self, tensor: Tensor) -> Storage | None:
        """What the ledger knows of a tensor; nothing of those inside `vmap`, which have no storage."""
        if torch._C._functorch.is_batchedtensor(tensor):
            return None
        return self.sim.ledger.of(tensor)

    # what operators do ---------------------------------------------------------------------------------

    def settle(self) -> None:
        """What was allocated since the last time was allocated by `top`."""
        self._autocast = torch.is_autocast_enabled("cuda")  # inside its own kernels it is off
        events = self.sim.events
        for position in range(self._settled, len(events)):
            event = events[position]
            if type(event) is Alloc:
                self.owners[event.id] = self.top
                self.top.allocates = True
        self._settled = len(events)

    def operator_ran(self, func: Any, args: Any, kwargs: Any, out: Any) -> None:
        """Called below autograd for every operator of the simulation."""
        self.top.macs += count_macs(func, args, kwargs, out)
        if self._autocast and func is torch.ops.aten._to_copy.default:
            entry = self.sim.ledger.of(out)
            weight = args[0].untyped_storage()._cdata in self.weights
            if weight and entry is not None and entry.alloc is not None:
                self.cast_weights[entry.key] = entry.alloc.id, entry.nbytes

    def save(self, saved_tensor: Tensor) -> Tensor:
        """Autograd saves a tensor: the first node that saves a storage keeps it."""
        tensor = saved_tensor
        with _no_modes():
            while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
                tensor = torch._C._functorch.get_unwrapped(tensor)
            storage = tensor.untyped_storage()
            entry = self.sim.ledger.storages.get(storage._cdata)
            identity = id(entry) if entry is not None else -storage._cdata
            if identity not in self.saved:
                number = entry.alloc.id if entry is not None and entry.alloc is not None else None
                self.saved[identity] = Saved(
                    self.top, *spec(tensor), storage.nbytes(), storage._cdata, entry, number
                )
                if entry is None:
                    self._host.append(storage)  # keeps the address from being used again
        return saved_tensor

    def what(self, saved: Saved) -> str:
        """What a kept storage is: activation, input, buffer, host or held."""
        if saved.held or saved.entry is None:
            return "held" if saved.held else "host"
        if saved.key in self._batch:
            return "input"
        return "buffer" if saved.key in self._buffers else "activation"

    def maker(self, saved: Saved) -> Node | None:
        """The module or operator that returned a saved storage; None if none did."""
        return self._claimed.get(id(saved.entry), (None, None))[1]

    @property
    def weight_copies_bytes(self) -> int:
        """What autocast keeps of weights in a lower precision."""
        return sum(nbytes for _, nbytes in self.cast_weights.values())


def _is_layer(module: nn.Module) -> bool:
    """A layer of torch.nn, or a class made from one, without modules inside: Conv2d, LSTM, timm's norms."""
    if module._modules:
        return False
    return any(cls.__module__.startswith("torch.nn.modules.") and cls is not nn.Module
               for cls in type(module).__mro__)  # fmt: skip
