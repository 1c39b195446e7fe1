"""Rows and totals from a recorded forward: every byte in exactly one row, so that rows add up to totals."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from memlens.model import Alloc, Category, Free
from memlens.summaries.collapse import collapse
from memlens.summaries.formulas import Formula, formulas_of
from memlens.summaries.nodes import KeptTensor, Node, Saved, Shape, Spec
from memlens.summaries.recorder import Recorder


@dataclass(frozen=True, slots=True)
class Row:
    """One layer (or operator) as it was called by its parent; its own bytes, nothing of the rows below.

    `path` is the module's dotted path; an operator's is that of the module that called it, a slash and its
    name. `calls` 0 is a module that never ran. `shared` marks one whose parameters, or all of whose work,
    an earlier row already counts. `output_bytes` are new storages that it returned, not views
    and in-place results. `kept_bytes` are storages that autograd keeps and this row was the first to save.
    `transient_bytes` is the most that it had allocated at a time and that is not kept.
    """

    path: str
    type: str
    depth: int
    calls: int
    shared: bool
    output_shapes: tuple[Shape, ...]
    params: int
    param_bytes: int
    buffer_bytes: int
    output_bytes: int
    kept_bytes: int
    transient_bytes: int
    macs: int
    # not in the contract: what the terminal, the formulas and other tools' tables need
    kind: str = field(default="module", compare=False)
    repeated: bool = field(default=False, compare=False)  # an earlier row is the same module
    trainable_params: int = field(default=0, compare=False)
    input_shapes: tuple[Shape, ...] = field(default=(), compare=False)
    dtype: str = field(default="", compare=False)
    kernel_size: tuple[int, ...] = field(default=(), compare=False)
    groups: int | None = field(default=None, compare=False)
    kept: tuple[KeptTensor, ...] = field(default=(), compare=False, repr=False)
    formulas: tuple[Formula, ...] = field(default=(), compare=False, repr=False)
    params_used: bool = field(default=True, compare=False)
    transient_below_bytes: int = field(default=0, compare=False)  # with all the rows below it
    watched: bool = field(default=True, compare=False)  # a forward ran, so 0 calls mean something

    @property
    def name(self) -> str:
        """The last part of the path: `conv1` of `layer1.0.conv1`."""
        return self.path.replace("/", ".").rsplit(".", 1)[-1]

    def to_dict(self) -> dict[str, Any]:
        """The row of schema `memlens.summary/1`."""
        row = {name: getattr(self, name) for name in CONTRACT}
        row["output_shapes"] = [list(shape) for shape in self.output_shapes]
        return row


CONTRACT = (
    "path", "type", "depth", "calls", "shared", "output_shapes", "params", "param_bytes", "buffer_bytes",
    "output_bytes", "kept_bytes", "transient_bytes", "macs",
)  # fmt: skip
SUMMED = ("params", "param_bytes", "buffer_bytes", "output_bytes", "kept_bytes", "macs")


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums of the rows; `input_bytes` is the batch."""

    params: int
    trainable_params: int
    param_bytes: int
    buffer_bytes: int
    input_bytes: int
    kept_bytes: int
    macs: int


def build_totals(rows: tuple[Row, ...], input_bytes: int) -> Totals:
    def total(name: str) -> int:
        return sum(getattr(row, name) for row in rows)

    return Totals(
        total("params"), total("trainable_params"), total("param_bytes"), total("buffer_bytes"), input_bytes,
        total("kept_bytes"), total("macs"),
    )  # fmt: skip


class Counted:
    """Parameters and buffers that a row has counted already, by identity and by place in a storage."""

    def __init__(self) -> None:
        self.seen: set[Any] = set()

    def is_new(self, tensor: Tensor) -> bool:
        key = (tensor.untyped_storage()._cdata, tensor.storage_offset(), tuple(tensor.shape))
        if key in self.seen:
            return False
        self.seen.add(key)
        return True


def build_rows(recorder: Recorder) -> tuple[Row, ...]:
    """The tree in order, never-called modules included. To be called while the simulation is active."""
    with torch._C.DisableTorchFunction():
        assign_kept(recorder)
        collapse(recorder.base)
        add_unused(recorder)
        set_transients(recorder)
        counted, seen = Counted(), set()
        rows = []
        names: set[str] = set()
        for node in recorder.root.walk():
            if node.kind == "operator":
                node.path = _unique(node.path, names)
        for node in recorder.root.walk():
            repeated = node.module is not None and id(node.module) in seen
            seen.add(id(node.module))
            kept = tuple(_kept(saved, recorder) for saved in node.saved)
            rows.append(_row(node, counted, repeated, kept, recorder))
    return tuple(rows)


def _row(
    node: Node,
    counted: Counted,
    repeated: bool,
    kept: tuple[KeptTensor, ...],
    recorder: Recorder,
) -> Row:
    module = node.module
    own = [p for p in module._parameters.values() if p is not None] if module is not None else []
    new = [p for p in own if counted.is_new(p)]
    buffers = [b for b in module._buffers.values() if b is not None] if module is not None else []
    return Row(
        path=node.path, type=node.type, depth=node.depth, calls=node.calls,
        shared=repeated or len(new) < len(own),
        output_shapes=tuple(shape for shape, _ in node.outputs),
        params=sum(p.numel() for p in new), param_bytes=_bytes(new),
        buffer_bytes=_bytes([b for b in buffers if counted.is_new(b)]),
        output_bytes=node.output_bytes, kept_bytes=sum(k.bytes for k in kept),
        transient_bytes=node.own.most, macs=node.macs,
        kind=node.kind,
        repeated=repeated, trainable_params=sum(p.numel() for p in new if p.requires_grad),
        input_shapes=tuple(shape for shape, _ in node.inputs), dtype=_dtype(node.outputs),
        kernel_size=_kernel_size(module), groups=_whole(module, "groups"), kept=kept,
        formulas=formulas_of(node, new, kept),
        transient_below_bytes=node.below.most,
        params_used=node.calls > 0 or not own or any(id(p) in recorder.used for p in own),
    )  # fmt: skip


def _bytes(tensors: list[Any]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _dtype(outputs: list[Spec]) -> str:
    return str(outputs[0][1]).removeprefix("torch.") if outputs else ""


def _kernel_size(module: nn.Module | None) -> tuple[int, ...]:
    size = getattr(module, "kernel_size", ())
    return tuple(size) if isinstance(size, (tuple, list)) else (size,) if isinstance(size, int) else ()


def _whole(module: nn.Module | None, name: str) -> int | None:
    value = getattr(module, name, None)
    return value if isinstance(value, int) else None


def _unique(path: str, names: set[str]) -> str:
    """`layer1/add`, `layer1/add-2`: operators of one name under one module get numbers."""
    unique, number = path, 1
    while unique in names:
        number += 1
        unique = f"{path}-{number}"
    names.add(unique)
    return unique


# what is kept ----------------------------------------------------------------------------------------------


def assign_kept(recorder: Recorder) -> None:
    """Give every node the storages that it was the first to save and that are still held.

    Parameters are no activations, and the copies of weights that autocast caches are counted apart.
    """
    weights = {p.untyped_storage()._cdata for p in recorder.model.parameters()} | recorder.weights
    for saved in recorder.saved.values():
        gone = saved.entry is not None and recorder.alive.get(saved.key) is not saved.entry
        if not gone and saved.key not in weights and saved.key not in recorder.cast_weights:
            saved.node.saved.append(saved)


def _kept(saved: Saved, recorder: Recorder) -> KeptTensor:
    dtype = str(saved.dtype).removeprefix("torch.")
    maker = recorder.maker(saved)
    source = None if maker is None else maker.final.path
    return KeptTensor(saved.shape, dtype, saved.nbytes, recorder.what(saved), source)


def set_transients(recorder: Recorder) -> None:
    """The most that each node had allocated at a time of what is not kept, alone and with all below it.

    The workspace that a library keeps (cuBLAS) belongs to no node; copies of weights belong to autocast.
    """
    kept = {
        saved.allocation
        for node in recorder.base.walk()
        for saved in node.saved
        if saved.allocation is not None
    }
    kept.update(number for number, _ in recorder.cast_weights.values())
    events = recorder.sim.events[recorder.start :]
    freed = {event.id for event in events if isinstance(event, Free)}
    sizes: dict[int, tuple[Node, int]] = {}
    for event in events:
        if isinstance(event, Alloc):
            stays = event.category is Category.WORKSPACE and event.id not in freed
            if event.id not in kept and not stays:
                node = recorder.owners.get(event.id, recorder.base).final
                sizes[event.id] = node, event.requested
                node.holds(event.requested)
        elif isinstance(event, Free) and event.id in sizes:
            node, size = sizes[event.id]
            node.holds(-size)


# what never ran --------------------------------------------------------------------------------------------


def add_unused(recorder: Recorder) -> None:
    """Nodes of 0 calls for modules that never ran, under the nearest module that did.

    Containers such as ModuleList never run themselves; they count only where they hold parameters.
    """
    nodes: dict[int, Node] = {}
    for node in recorder.base.walk():
        if node.module is not None:
            nodes.setdefault(id(node.module), node)
    _add_below(recorder.model, "", nodes, recorder.root)


def _add_below(module: nn.Module, path: str, nodes: dict[int, Node], parent: Node) -> bool:
    """Add what never ran at and below `module`; whether anything there ran."""
    node = nodes.get(id(module))
    ran = node is not None
    if node is None:
        holds = any(True for _ in (*module._parameters.values(), *module._buffers.values()))
        if holds or not module._modules:
            name = type(module).__name__
            node = Node("module", path, name, parent.depth + 1, None, parent, module, absorbs=True)
            parent.children.append(node)
            nodes[id(module)] = node
    for name, child in module._modules.items():
        if child is not None:
            ran |= _add_below(child, f"{path}.{name}" if path else name, nodes, node or parent)
    return ran
