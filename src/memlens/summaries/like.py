"""What torchsummary and torchinfo would print, and where that differs from memory, row by row.

Their rules, as found by running torchsummary 1.5.1 and torchinfo 1.8.0: both take twice the sum of module
outputs for "Forward/backward pass size". torchsummary counts every module's output, those of modules that
contain others too, at four bytes an element; torchinfo those of modules without children that own parameters,
first tensor only. Neither sees functional operators, nor asks what backward really needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from memlens.summaries.nodes import Output, Saved
from memlens.summaries.record import Recorder
from memlens.units import MIB

MB = 10**6

AGAIN = "counted again: this memory was the output of {} already"
TWICE = "counted twice, kept once"
NOT_KEPT = "counted twice, not kept: no backward needs it"
OTHER_SIZE = "counted by its shape: {} as large as what is kept"
# kept, but not the output of anything that the tool counts
BATCH = "the batch, kept for the first layer's gradient: the tool has it as input size only"
BUFFER = "not seen: a buffer that backward reads"
HOST = "not seen: a number on the host"
HELD = "not seen: held by the graph, for checkpointing or by a custom function"
OPERATOR = "not seen: the output of an operator, {}"
MODULE = "not counted: the output of {}, by the tool's rule"
INSIDE = "not seen: made inside {} for its backward"


@dataclass(frozen=True, slots=True)
class Difference:
    """What a tool counts for one output (0 where it sees none), what of it is kept, and why they differ."""

    path: str
    counted_bytes: int
    kept_bytes: int
    why: str


@dataclass(frozen=True, slots=True)
class Like:
    """The four numbers a tool prints, in its own MB: 2^20 bytes for torchsummary, 10^6 for torchinfo.

    `differences` add up: to the tool's forward/backward size, and to the bytes that are kept.
    """

    tool: str
    unit: int
    input_mb: float
    forward_backward_mb: float
    params_mb: float
    total_mb: float
    differences: tuple[Difference, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        names = ("tool", "input_mb", "forward_backward_mb", "params_mb", "total_mb")
        return {name: getattr(self, name) for name in names}


Counted = tuple[str, int, list[Output]]  # path, bytes, the outputs that were meant


def build_likes(recorder: Recorder, inputs: list[Any]) -> dict[str, Like]:
    """What each tool would say of this forward. To be called when the rows know what they keep."""
    return {tool: make(recorder, inputs) for tool, make in TOOLS.items()} if inputs else {}


def _like(
    tool: str, unit: int, recorder: Recorder, input_bytes: int, counted: list[Counted], param_bytes: int
) -> Like:
    outputs = sum(size for _, size, _ in counted)
    total = input_bytes + outputs + param_bytes
    input_mb, outputs_mb, params_mb, total_mb = (n / unit for n in (input_bytes, outputs, param_bytes, total))
    order = {node.path: number for number, node in reversed(list(enumerate(recorder.base.walk())))}
    why = tuple(sorted(_differences(recorder, counted), key=lambda found: order.get(found.path, 0)))
    return Like(tool, unit, input_mb, outputs_mb, params_mb, total_mb, why)


def _differences(recorder: Recorder, counted: list[Counted]) -> Iterator[Difference]:
    """What the tool counts, call by call, and what is kept that it does not count."""
    saved = {id(item.entry): item for node in recorder.base.walk() for item in node.saved if item.entry}
    first: dict[int, str] = {}
    for path, size, outputs in counted:
        storages = [out.storage for out in outputs if out.storage is not None]
        new = [storage for storage in storages if storage not in first]
        kept = sum(saved[storage].nbytes for storage in new if storage in saved)
        if kept:
            why = TWICE if 2 * kept == size else OTHER_SIZE.format(f"{size / kept:.2g} times")
        elif storages and not new:
            why = AGAIN.format(first[storages[0]] or "the model")
        else:
            why = NOT_KEPT
        first.update(dict.fromkeys(new, path))
        yield Difference(path, size, kept, why)
    for node in recorder.base.walk():
        for item in node.saved:
            if item.entry is None or id(item.entry) not in first:
                yield Difference(node.path, 0, item.nbytes, _unseen(recorder, item))


def _unseen(recorder: Recorder, item: Saved) -> str:
    """Why a tool that looks at modules' outputs does not count a storage that is kept."""
    known = {"input": BATCH, "buffer": BUFFER, "host": HOST, "held": HELD}.get(recorder.what(item))
    if known:
        return known
    maker = recorder.maker(item)
    if maker is None:
        return INSIDE.format(item.node.type)
    if maker.kind == "operator":
        return OPERATOR.format(maker.type)
    return MODULE.format(f"{maker.path} ({maker.type})" if maker.path else maker.type)


# torchsummary ----------------------------------------------------------------------------------------------


def torchsummary(recorder: Recorder, inputs: list[Any]) -> Like:
    """Four bytes for every element; modules count at every call; the input is one product of all sizes."""
    counted: list[Counted] = []
    params = 0
    for call in recorder.calls:
        if isinstance(call.module, (nn.Sequential, nn.ModuleList)) or call.module is recorder.model:
            continue
        outputs = list(_in_lists(call.output))
        elements = math.prod(size for out in outputs for size in out.shape)
        counted.append((call.node.path, 2 * 4 * elements, outputs))
        owned = [getattr(call.module, name, None) for name in ("weight", "bias")]
        params += sum(tensor.numel() for tensor in owned if isinstance(tensor, Tensor))
    input_bytes = 4 * math.prod(n for tensor in inputs for n in tensor.shape[1:]) * inputs[0].shape[0]
    return _like("torchsummary", MIB, recorder, input_bytes, counted, 4 * params)


def _in_lists(output: Any) -> Iterator[Output]:
    """The tensors of an output; a tuple's sizes all go into one product in torchsummary."""
    if isinstance(output, Output):
        yield output
    elif isinstance(output, list):
        for item in output:
            yield from _in_lists(item)


# torchinfo -------------------------------------------------------------------------------------------------


def torchinfo(recorder: Recorder, inputs: list[Any]) -> Like:
    """Modules without children that own parameters, at every call; parameters once a module, ties twice."""
    counted: list[Counted] = []
    seen: set[int] = set()
    param_bytes = 0
    for call in recorder.calls:
        if any(True for _ in call.module.children()):
            continue
        owned = list(call.module.parameters())
        first = _first(call.output)
        if owned and first is not None:
            size = 2 * math.prod(first.shape) * first.dtype.itemsize
            counted.append((call.node.path, size, [first]))
        if id(call.module) not in seen:
            seen.add(id(call.module))
            param_bytes += sum(p.numel() * p.element_size() for p in owned)
    input_bytes = sum(tensor.untyped_storage().nbytes() for tensor in inputs)
    return _like("torchinfo", MB, recorder, input_bytes, counted, param_bytes)


def _first(output: Any) -> Output | None:
    """The tensor that stands for an output: the first of a list, the last value of a dictionary."""
    if isinstance(output, Output):
        return output
    items = list(output.values())[-1:] if isinstance(output, dict) else output or []
    return _first(items[0]) if items else None


TOOLS = {"torchsummary": torchsummary, "torchinfo": torchinfo}
