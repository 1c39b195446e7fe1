"""cuDNN's recurrent kernels and the fused cells: outputs, reserve and workspace.

ATen/native/cudnn/RNN.cpp allocates; the sizes of reserve and workspace are the library's own
(cudnnGetRNNTempSpaceSizes, which needs a card). Here: what backward cannot do without, as an assumption.

Lives of the buffers of one layer call (T steps, B samples, D directions, H hidden units, G gates):

                                   forward   until backward   backward
    output        T B D H             #            #             #
    hy, cy        layers D B H        #      (as long as the caller keeps them)
    reserve       T B D H layers KEPT #            #             #
    workspace     T B D H G           #                          #
    copy of x     T B inputs          #                          #   (batch_first alone; backward copies
    gradients     of x, hx, cx                                   #    the output and its gradient, too)
    weights' grad one flat buffer                                #
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from memlens.model import Category
from memlens.simulation.core.cuda import Cuda
from memlens.simulation.rules.common import copy_unless_contiguous, nbytes
from memlens.simulation.rules.registry import operator
from memlens.simulation.rules.uncertain_workspace import keep

if TYPE_CHECKING:
    from torch import Tensor

GATES = {0: 1, 1: 1, 2: 4, 3: 3}  # by cudnnRNNMode_t: relu, tanh, lstm, gru
# numbers kept per step, layer, direction, sample and hidden unit: the gates, for an LSTM the cell, for a GRU
# the hidden part of its candidate, and the layer's output. At least the gates; at most twice all of it.
KEPT = {0: 1, 1: 1, 2: 6, 3: 5}
_STATE_BYTES = 16  # Philox state per resident thread, in cudnnDropoutGetStatesSize; a guess, at most 3x
_THREADS = 2048


def _say_reserve(calls: int) -> tuple[str, str]:
    return (
        f"cuDNN keeps gates, cells and outputs of every step of {calls:,} recurrent calls",
        "the library decides the size on the card; at least the gates, at most twice as much",
    )


def _say_dropout(calls: int) -> tuple[str, str]:
    return (
        "cuDNN's dropout between recurrent layers keeps a generator per resident thread",
        "the library decides the size on the card",
    )


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


def keep_dropout_state(cuda: Cuda) -> None:
    """The generators of dropout between layers: made once per process and kept."""
    notes = cuda.sim.notes
    if "cudnn dropout state" in notes:
        return
    size = notes["cudnn dropout state"] = cuda.gpu.multiprocessors * _THREADS * _STATE_BYTES
    Cuda(cuda.sim, "_cudnn_init_dropout_state").hold(size, Category.WORKSPACE)
    keep(cuda, "cudnn dropout", (0, 3 * size), _say_dropout)


@operator("aten::_cudnn_rnn_flatten_weight")
def flatten_weight(cuda: Cuda, weight_arr: list[Tensor]) -> Tensor:
    """All weights move into one buffer and become views of it; the old ones are freed."""
    flat = cuda.new((sum(w.numel() for w in weight_arr),), weight_arr[0].dtype)
    cuda.sim.label(flat, Category.PARAMETER)
    offset = 0
    for weight in weight_arr:
        strides = torch.empty(weight.shape, device="meta").stride()
        torch.ops.aten.set_.source_Storage_storage_offset(
            weight, flat.untyped_storage(), offset, weight.shape, strides
        )
        offset += weight.numel()
    return flat


@operator("aten::_cudnn_rnn")
def cudnn_rnn(
    cuda: Cuda,
    input: Tensor,
    weight: list[Tensor],
    weight_buf: Tensor | None,
    hx: Tensor,
    cx: Tensor | None,
    mode: int,
    hidden_size: int,
    proj_size: int,
    num_layers: int,
    batch_first: bool,
    train: bool,
    bidirectional: bool,
    batch_sizes: list[int],
) -> tuple[Tensor, ...]:
    """Output, states, reserve and the flat weights."""
    directions = 2 if bidirectional else 1
    turned = batch_first and not batch_sizes
    x = input.transpose(0, 1) if turned else input
    out = cuda.new((*x.shape[:-1], (proj_size or hidden_size) * directions), input.dtype)
    hy = cuda.new_like(hx)
    cy = cuda.new((0,), hx.dtype) if cx is None else cuda.new_like(cx)
    if weight_buf is None:
        weight_buf = cuda.new((sum(w.numel() for w in weight),), input.dtype)
    unit = _unit_bytes(x, hidden_size, directions)
    kept = unit * num_layers * KEPT[mode] if train else 0
    reserve = cuda.new((kept,), torch.uint8)
    if kept:
        keep(cuda, "cudnn rnn", (unit * num_layers * GATES[mode], 2 * kept), _say_reserve)
    cuda.scratch(copy_unless_contiguous(x), unit * GATES[mode], category=Category.WORKSPACE)
    return out.transpose(0, 1) if turned else out, hy, cy, reserve, weight_buf


def _unit_bytes(x: Tensor, hidden_size: int, directions: int) -> int:
    """Bytes of one number per step, sample, direction and hidden unit."""
    return x.numel() // x.size(-1) * hidden_size * directions * x.element_size()


@operator("aten::_cudnn_rnn_backward")
def cudnn_rnn_backward(
    cuda: Cuda,
    input: Tensor,
    weight: list[Tensor],
    weight_buf: Tensor,
    hx: Tensor,
    cx: Tensor | None,
    output: Tensor,
    grad_output: Tensor | None,
    grad_hy: Tensor | None,
    grad_cy: Tensor | None,
    mode: int,
    hidden_size: int,
    batch_first: bool,
    bidirectional: bool,
    batch_sizes: list[int],
    output_mask: list[bool],
) -> tuple[Tensor, Tensor, Tensor | None, list[Tensor | None]]:
    """Gradients of input and states, and views of one flat buffer for the weights."""
    turned = batch_first and not batch_sizes
    x = input.transpose(0, 1) if turned else input
    dx = cuda.new(tuple(x.shape), input.dtype)
    dhx = cuda.new_like(hx)
    dcx = None if cx is None else cuda.new_like(cx)
    copied = [t for t in (input, output, grad_output) if t is not None and turned]
    zeros = [like for like, given in ((output, grad_output), (hx, grad_hy), (cx, grad_cy)) if given is None]
    copied += [like for like in zeros if like is not None]
    workspace = _unit_bytes(x, hidden_size, 2 if bidirectional else 1) * GATES[mode]
    cuda.scratch(*(nbytes(tensor) for tensor in copied), workspace, category=Category.WORKSPACE)
    grads: list[Tensor | None] = [None] * len(weight)
    if output_mask[3]:
        grads = list(views_of(cuda.new_like(weight_buf), weight))
    return dx.transpose(0, 1) if turned else dx, dhx, dcx, grads


# cells and packed sequences -----------------------------------------------------------------------------


@operator("aten::_thnn_fused_gru_cell")
def gru_cell(cuda: Cuda, hx: Tensor) -> tuple[Tensor, Tensor]:
    """The new state, and five numbers an element for backward (GRU_WORKSPACE_MULTIPLIER, RNN.cu)."""
    return cuda.new_like(hx), cuda.new((hx.size(0), hx.size(1) * 5), hx.dtype)


@operator("aten::_thnn_fused_gru_cell_backward")
def gru_cell_backward(cuda: Cuda, workspace: Tensor, has_bias: bool) -> tuple[Tensor | None, ...]:
    """Gradients of both gate tensors, of the state, and of the biases where there are any."""
    batch, hidden = workspace.size(0), workspace.size(1) // 5
    shapes: list[tuple[int, ...]] = [(batch, 3 * hidden), (batch, 3 * hidden), (batch, hidden)]
    shapes += [(3 * hidden,), (3 * hidden,)] if has_bias else []
    grads = [cuda.new(shape, workspace.dtype) for shape in shapes]
    return *grads, *([] if has_bias else [None, None])


@operator("aten::_pack_padded_sequence")
def pack_padded_sequence(
    cuda: Cuda, input: Tensor, lengths: Tensor, batch_first: bool
) -> tuple[Tensor, Tensor]:
    """The lengths are on the host, so the packed size is known."""
    data, sizes = torch.ops.aten._pack_padded_sequence.default(input, lengths, batch_first)
    if cuda.has(input):
        cuda.adopt(data)
    return data, sizes
