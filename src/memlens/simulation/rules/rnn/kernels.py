"""cuDNN's recurrent kernels and the fused cells: outputs, reserve and workspace.

ATen/native/cudnn/RNN.cpp allocates; the sizes of reserve and workspace are the library's own
(cudnnGetRNNTempSpaceSizes, which needs a card). Here: what backward cannot do without, as an assumption.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from memlens.model import Assumption, Category
from memlens.simulation.core.ledger import CUDA
from memlens.simulation.rules.registry import operator

if TYPE_CHECKING:
    from torch import Tensor

    from memlens.simulation.core.session import Simulation

GATES = {0: 1, 1: 1, 2: 4, 3: 3}  # by cudnnRNNMode_t: relu, tanh, lstm, gru
# numbers kept per step, layer, direction, sample and hidden unit: the gates, for an LSTM the cell, for a GRU
# the hidden part of its candidate, and the layer's output. At least the gates; at most twice all of it.
KEPT = {0: 1, 1: 1, 2: 6, 3: 5}
_STATE_BYTES = 16  # Philox state per resident thread, in cudnnDropoutGetStatesSize; a guess, at most 3x
_THREADS = 2048


def in_one_buffer(params: list[Tensor]) -> Tensor | None:
    """try_get_weight_buf: the flat buffer that all weights are views of, if there is one."""
    first = params[0].untyped_storage()
    if any(p.untyped_storage()._cdata != first._cdata for p in params):
        return None
    with torch.no_grad():
        count = first.nbytes() // params[0].element_size()
        flat: Tensor = params[0].detach().as_strided((count,), (1,), 0)
        return flat


def views_of(flat: Tensor, like: list[Tensor]) -> list[Tensor]:
    """Tensors with the sizes of `like`, one after the other in the storage of `flat`."""
    views, offset = [], 0
    with torch.no_grad():
        for tensor in like:
            view = torch.empty(0, dtype=flat.dtype, device="meta")
            strides = torch.empty(tensor.shape, device="meta").stride()
            view.set_(flat.untyped_storage(), offset, tensor.shape, strides)
            offset += tensor.numel()
            views.append(view)
    return views


def keep_dropout_state(sim: Simulation) -> None:
    """The generators of dropout between layers: made once per process and kept."""
    if not sim.notes.setdefault("cudnn dropout state", 0):
        sim.notes["cudnn dropout state"] = nbytes = sim.gpu.multiprocessors * _THREADS * _STATE_BYTES
        sim.ledger.scratch(nbytes, Category.WORKSPACE, sim.site("_cudnn_init_dropout_state"), sim.stream)
        sim.assume(
            Assumption(
                "cuDNN's dropout between recurrent layers keeps a generator per resident thread",
                "the library decides the size on the card",
                -nbytes,
                2 * nbytes,
            )
        )


@operator("aten::_cudnn_rnn_flatten_weight")
def flatten_weight(sim: Simulation, args: Any, kwargs: Any) -> Tensor:
    """All weights move into one buffer and become views of it; the old ones are freed."""
    weights = args[0]
    flat = torch.empty(sum(w.numel() for w in weights), dtype=weights[0].dtype, device="meta")
    sim.adopt(flat, "_cudnn_rnn_flatten_weight")
    sim.label(flat, Category.PARAMETER)
    offset = 0
    for weight in weights:
        strides = torch.empty(weight.shape, device="meta").stride()
        torch.ops.aten.set_.source_Storage_storage_offset(
            weight, flat.untyped_storage(), offset, weight.shape, strides
        )
        offset += weight.numel()
    return flat


@operator("aten::_cudnn_rnn")
def cudnn_rnn(sim: Simulation, args: Any, kwargs: Any) -> tuple[Tensor, ...]:
    """Output, states, reserve and the flat weights."""
    input, weights, _, flat, hx, cx, mode, hidden, projection, layers, first = args[:11]
    _, train, bidirectional, sizes, _ = args[11:]
    directions = 2 if bidirectional else 1
    x = input.transpose(0, 1) if first and not sizes else input
    lead = tuple(x.shape[:-1])
    made = [torch.empty((*lead, (projection or hidden) * directions), dtype=input.dtype, device="meta")]
    made.append(torch.empty_like(hx))
    made.append(torch.empty_like(cx) if mode == 2 else torch.empty(0, dtype=hx.dtype, device="meta"))
    if flat is None:
        flat = torch.empty(sum(w.numel() for w in weights), dtype=input.dtype, device="meta")
        made.append(flat)
    steps = x.numel() // x.size(-1)  # samples x steps
    unit = steps * hidden * directions * input.element_size()
    kept = unit * layers * KEPT[mode] if train else 0
    reserve = torch.empty(kept, dtype=torch.uint8, device="meta")
    for tensor in (*made, reserve):
        sim.adopt(tensor, "_cudnn_rnn")
    _scratch(
        sim,
        "_cudnn_rnn",
        0 if x.is_contiguous() else input.numel() * input.element_size(),
        unit * GATES[mode],
    )
    if train:
        _tell(sim, kept, unit * layers * GATES[mode])
    out = made[0].transpose(0, 1) if first and not sizes else made[0]
    return out, made[1], made[2], reserve, flat


@operator("aten::_cudnn_rnn_backward")
def cudnn_rnn_backward(sim: Simulation, args: Any, kwargs: Any) -> Any:
    """Gradients of input and states, and views of one flat buffer for the weights."""
    input, weights, _, flat, hx, cx, output, grad, grad_hy, grad_cy = args[:10]
    mode, hidden, first, sizes, mask = args[10], args[11], args[14], args[18], args[21]
    directions = 2 if args[17] else 1
    x = input.transpose(0, 1) if first and not sizes else input
    made: dict[str, Tensor] = {"x": torch.empty(x.shape, dtype=input.dtype, device="meta")}
    made["hx"] = torch.empty_like(hx)
    if cx is not None:
        made["cx"] = torch.empty_like(cx)
    for tensor in made.values():
        sim.adopt(tensor, "_cudnn_rnn_backward")
    copied = [t for t in (input, output, grad) if t is not None and first and not sizes]
    zeros = [like for like, given in ((output, grad), (hx, grad_hy), (cx, grad_cy)) if given is None]
    copied += [like for like in zeros if like is not None]
    unit = x.numel() // x.size(-1) * hidden * directions * input.element_size()
    _scratch(sim, "_cudnn_rnn_backward", *(t.numel() * t.element_size() for t in copied), unit * GATES[mode])
    dx = made["x"].transpose(0, 1) if first and not sizes else made["x"]
    grads: list[Tensor | None] = [None] * len(weights)
    if mask[3]:
        dw = torch.empty_like(flat)
        sim.adopt(dw, "_cudnn_rnn_backward")
        grads = list(views_of(dw, weights))
    return dx, made["hx"], made.get("cx"), grads


def _scratch(sim: Simulation, name: str, *sizes: int) -> None:
    site = sim.site(name)
    frees = [sim.ledger.scratch(size, Category.WORKSPACE, site, sim.stream) for size in sizes]
    for free in reversed(frees):
        free()


def _tell(sim: Simulation, kept: int, least: int) -> None:
    site = sim.site("_cudnn_rnn")
    sim.assume(
        Assumption(
            f"cuDNN keeps gates, cells and outputs of every step ({site.where or 'a recurrent layer'})",
            "the library decides the size on the card; at least the gates, at most twice as much",
            min(least - kept, 0),
            kept,
        )
    )


# cells and packed sequences -----------------------------------------------------------------------------


@operator("aten::_thnn_fused_gru_cell")
def gru_cell(sim: Simulation, args: Any, kwargs: Any) -> tuple[Tensor, Tensor]:
    """The new state, and five numbers an element for backward (GRU_WORKSPACE_MULTIPLIER, RNN.cu)."""
    hx = args[2]
    hy = torch.empty_like(hx)
    workspace = torch.empty((hx.size(0), hx.size(1) * 5), dtype=hx.dtype, device="meta")
    for tensor in (hy, workspace):
        sim.adopt(tensor, "_thnn_fused_gru_cell")
    return hy, workspace


@operator("aten::_thnn_fused_gru_cell_backward")
def gru_cell_backward(sim: Simulation, args: Any, kwargs: Any) -> tuple[Tensor | None, ...]:
    """Gradients of both gate tensors, of the state, and of the biases where there are any."""
    _, workspace, has_bias = args
    batch, hidden = workspace.size(0), workspace.size(1) // 5
    shapes = [(batch, 3 * hidden), (batch, 3 * hidden), (batch, hidden)]
    shapes += [(3 * hidden,), (3 * hidden,)] if has_bias else []  # type: ignore[list-item]
    made = [torch.empty(shape, dtype=workspace.dtype, device="meta") for shape in shapes]
    for tensor in made:
        sim.adopt(tensor, "_thnn_fused_gru_cell_backward")
    return *made, *([] if has_bias else [None, None])


@operator("aten::_pack_padded_sequence")
def pack_padded_sequence(sim: Simulation, args: Any, kwargs: Any) -> Any:
    """The lengths are on the host, so the packed size is known."""
    data, sizes = torch.ops.aten._pack_padded_sequence.default(*args, **kwargs)
    if args[0].is_meta:
        entry = sim.ledger.of(args[0])
        if entry is not None and entry.device is CUDA:
            sim.adopt(data, "_pack_padded_sequence")
    return data, sizes
