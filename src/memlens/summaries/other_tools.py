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
from memlens.summaries.recorder import Recorder
from memlens.units import MIB

MB = 10**6

SUBTRACTED = "subtracted: the tool multiplies by -1 for every tensor of a tuple"
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
    stops: str | None = None  # the module at which the tool itself would fail

    def to_dict(self) -> dict[str, Any]:
        names = ("tool", "input_mb", "forward_backward_mb", "params_mb", "total_mb")
        return {name: getattr(self, name) for name in names}


Counted = tuple[str, int, list[Output]]  # path, bytes, the outputs that were meant


def build_likes(recorder: Recorder, inputs: list[Any]) -> dict[str, Like]:
    """What each tool would say of this forward. To be called when the rows know what they keep."""
    return {tool: make(recorder, inputs) for tool, make in TOOLS.items()} if inputs else {}


def _like(
    tool: str,
    unit: int,
    recorder: Recorder,
    input_bytes: int,
    counted: list[Counted],
    param_bytes: int,
    stops: str | None = None,
) -> Like:
    outputs = sum(size for _, size, _ in counted)
    total = input_bytes + outputs + param_bytes
    input_mb, outputs_mb, params_mb, total_mb = (n / unit for n in (input_bytes, outputs, param_bytes, total))
    order = {node.path: number for number, node in reversed(list(enumerate(recorder.base.walk())))}
    why = tuple(sorted(_differences(recorder, counted), key=lambda difference: order.get(difference.path, 0)))
    return Like(tool, unit, input_mb, outputs_mb, params_mb, total_mb, why, stops)


def _differences(recorder: Recorder, counted: list[Counted]) -> Iterator[Difference]:
    """What the tool counts, call by call, and what is kept that it does not count."""
    saved = {id(item.entry): item for node in recorder.base.walk() for item in node.saved if item.entry}
    first: dict[int, str] = {}
    for path, size, outputs in counted:
        storages = [out.storage for out in outputs if out.storage is not None]
        new = [storage for storage in storages if storage not in first]
        kept = sum(saved[storage].nbytes for storage in new if storage in saved)
        if kept:
            why = TWICE if 2 * kept == size else OTHER_SIZE.format(f"{size / kept:,.2f} times")
        elif size < 0:
            why = SUBTRACTED
        elif storages and not new:
            why = AGAIN.format(first[storages[0]] or "the model")
        else:
            why = NOT_KEPT
        first.update(dict.fromkeys(new, path))
        yield Difference(path, size, kept, why)
    unseen: dict[tuple[str, str], int] = {}
    for node in recorder.base.walk():
        for item in node.saved:
            if item.entry is None or id(item.entry) not in first:
                key = node.path, _unseen(recorder, item)
                unseen[key] = unseen.get(key, 0) + item.nbytes
    for (path, why), size in unseen.items():
        yield Difference(path, 0, size, why)


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
    """Four bytes for every element; modules count at every call; the input is one product of all sizes.

    The batch is -1 if none is given, and -1 in every tensor of a tuple, whose sizes are all multiplied:
    what is negative is subtracted, and of the sum the absolute value is printed.
    """
    batch = inputs[0].shape[0] if inputs[0].dim() else 1
    counted: list[Counted] = []
    params, stops = 0, None
    for call in recorder.calls:
        if isinstance(call.module, (nn.Sequential, nn.ModuleList)) or call.module is recorder.model:
            continue
        outputs = call.output if isinstance(call.output, list) else [call.output]
        if not call.takes_tensor or not all(isinstance(output, Output) for output in outputs):
            stops = stops or call.node.path
            outputs = list(_in_lists(outputs))
        first = -1 if batch == 1 or isinstance(call.output, list) else batch
        elements = math.prod(first * math.prod(output.shape[1:]) for output in outputs)
        counted.append((call.node.path, 2 * 4 * elements, outputs))
        owned = [getattr(call.module, name, None) for name in ("weight", "bias")]
        params += sum(tensor.numel() for tensor in owned if isinstance(tensor, Tensor))
    if sum(size for _, size, _ in counted) < 0:
        counted = [(path, -size, outputs) for path, size, outputs in counted]
    input_bytes = 4 * math.prod(n for tensor in inputs for n in tensor.shape[1:]) * batch
    return _like("torchsummary", MIB, recorder, input_bytes, counted, 4 * params, stops)


def _in_lists(output: Any) -> Iterator[Output]:
    if isinstance(output, Output):
        yield output
    elif isinstance(output, (list, dict)):
        for item in output.values() if isinstance(output, dict) else output:
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
    """The tensor that is counted as the output: the first of a list, the last value of a dictionary."""
    if isinstance(output, Output):
        return output
    items = list(output.values())[-1:] if isinstance(output, dict) else output or []
    return _first(items[0]) if items else None


TOOLS = {"torchsummary": torchsummary, "torchinfo": torchinfo}
