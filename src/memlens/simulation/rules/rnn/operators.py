"""LSTM, GRU and RNN as CUDA runs them: cuDNN where it takes the dtype, else fused cells step by step.

ATen/native/RNN.cpp decides, ATen/native/cudnn/RNN.cpp runs cuDNN. Under autocast the weights are cast into a
flat buffer of their own at every call (ATen/cudnn/AutocastRNN.cpp).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from memlens.simulation.core.device_checks import check_rnn
from memlens.simulation.rules.registry import composite
from memlens.simulation.rules.rnn.kernels import in_one_buffer, keep_dropout_state, views_of

if TYPE_CHECKING:
    from torch import Tensor

    from memlens.simulation.core.cuda import Cuda

_aten = torch.ops.aten
_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)
_CUDNN_DTYPES = (torch.float16, torch.float32, torch.float64)  # torch/backends/cudnn/__init__.py
MODES = {"rnn_relu": 0, "rnn_tanh": 1, "lstm": 2, "gru": 3}  # cudnnRNNMode_t


class Call(NamedTuple):
    """One call of a recurrent operator; `sizes` are a packed sequence's batch sizes."""

    kind: str
    input: Tensor
    sizes: list[int]
    hidden: tuple[Tensor, ...]
    params: list[Tensor]
    has_biases: bool
    layers: int
    dropout: float
    train: bool
    bidirectional: bool
    batch_first: bool = False


def _run(cuda: Cuda, call: Call) -> tuple[Tensor, ...]:
    check_rnn(cuda.sim.ledger, call.hidden, call.params)
    if call.input.dtype in _CUDNN_DTYPES and torch.backends.cudnn.enabled and call.input.numel():
        return _cudnn(cuda, call)
    return _native(call)


_WHY = "CUDA gives the whole sequence to cuDNN, which keeps a reserve for backward"


@composite(*(f"aten::{kind}.input" for kind in MODES), why=_WHY)
def padded(
    cuda: Cuda,
    input: Tensor,
    hx: Tensor | list[Tensor],
    params: list[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    states = (hx,) if isinstance(hx, torch.Tensor) else tuple(hx)
    how = (has_biases, num_layers, dropout, train, bidirectional, batch_first)
    return _run(cuda, Call(cuda.operator, input, [], states, params, *how))


@composite(*(f"aten::{kind}.data" for kind in MODES), why=_WHY)
def packed(
    cuda: Cuda,
    data: Tensor,
    batch_sizes: Tensor,
    hx: Tensor | list[Tensor],
    params: list[Tensor],
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
) -> tuple[Tensor, ...]:
    states = (hx,) if isinstance(hx, torch.Tensor) else tuple(hx)
    how = (has_biases, num_layers, dropout, train, bidirectional)
    return _run(cuda, Call(cuda.operator, data, batch_sizes.tolist(), states, params, *how))


# cuDNN --------------------------------------------------------------------------------------------------


def _cudnn(cuda: Cuda, call: Call) -> tuple[Tensor, ...]:
    hx, cx = call.hidden[0], (call.hidden[1] if len(call.hidden) > 1 else None)
    hidden_size, proj_size = hx.size(2), 0
    if cx is not None and cx.size(2) != hx.size(2):
        hidden_size, proj_size = cx.size(2), hx.size(2)
    input, params = call.input, call.params
    weights = in_one_buffer(params)
    if torch.is_autocast_enabled("cuda"):
        dtype = torch.get_autocast_dtype("cuda")
        input, hx = input.to(dtype), hx.to(dtype)
        cx = None if cx is None else cx.to(dtype)
        weights, params = _cast_and_flatten(params, dtype)
    if call.dropout > 0 and call.train:
        keep_dropout_state(cuda)
    with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
        out, hy, cy, _, _ = _aten._cudnn_rnn(
            input,
            params,
            len(params) // (call.layers * (2 if call.bidirectional else 1)),
            weights,
            hx,
            cx,
            MODES[call.kind],
            hidden_size,
            proj_size,
            call.layers,
            call.batch_first,
            call.dropout,
            call.train,
            call.bidirectional,
            call.sizes,
            None,
        )
    return (out, hy, cy) if cx is not None else (out, hy)


def _cast_and_flatten(params: list[Tensor], dtype: torch.dtype) -> tuple[Tensor, list[Tensor]]:
    flat = torch.empty(sum(p.numel() for p in params), dtype=dtype, device="meta")
    copies = views_of(flat, params)
    for copy, param in zip(copies, params, strict=True):
        copy.copy_(param)
    return flat, copies


# step by step -------------------------------------------------------------------------------------------


def _native(call: Call) -> tuple[Tensor, ...]:
    """`_rnn_impl` and `_lstm_impl` of RNN.cpp with the cells that CUDA fuses."""
    directions = 2 if call.bidirectional else 1
    each = len(call.params) // (call.layers * directions)
    x = call.input.transpose(0, 1) if call.batch_first and not call.sizes else call.input
    final: list[list[Tensor]] = []
    for layer in range(call.layers):
        outputs = []
        for direction in range(directions):
            number = layer * directions + direction
            state = [h[number] for h in call.hidden]
            weights = call.params[number * each : (number + 1) * each]
            out, last = _layer(call, x, state, weights, backwards=direction == 1)
            outputs.append(out)
            final.append(last)
        x = outputs[0] if directions == 1 else torch.cat(outputs, -1)
        if call.dropout > 0 and call.train and layer < call.layers - 1:
            x = torch.dropout(x, call.dropout, True)
    out = x.transpose(0, 1) if call.batch_first and not call.sizes else x
    return out, *(torch.stack([last[i] for last in final]) for i in range(len(call.hidden)))


def _layer(
    call: Call, x: Tensor, state: list[Tensor], weights: list[Tensor], backwards: bool
) -> tuple[Tensor, list[Tensor]]:
    steps = list(x.split(call.sizes)) if call.sizes else list(x.unbind(0))
    if backwards:
        steps.reverse()
    results, full = [], state
    for step in steps:
        now = step.size(0)
        state = [
            torch.cat([s, f[len(s) : now]]) if len(s) < now else s[:now]
            for s, f in zip(state, full, strict=True)
        ]
        state = _step(call, step, state, weights)
        results.append(state[0])
    if backwards:
        results.reverse()
    return (torch.cat(results) if call.sizes else torch.stack(results)), state


def _step(call: Call, x: Tensor, state: list[Tensor], weights: list[Tensor]) -> list[Tensor]:
    w_ih, w_hh = weights[0], weights[1]
    biases = (weights[2], weights[3]) if call.has_biases else (None, None)
    if call.kind == "lstm":
        hy, cy = _lstm_cell(x, state, w_ih, w_hh, *biases)
        has_projection = len(weights) > (4 if call.has_biases else 2)
        return [hy.matmul(weights[-1].t()) if has_projection else hy, cy]
    if call.kind == "gru":
        return [_gru_cell(x, state[0], w_ih, w_hh, *biases)]
    cell = torch.rnn_tanh_cell if call.kind == "rnn_tanh" else torch.rnn_relu_cell
    return [cell(x, state[0], w_ih, w_hh, *biases)]


def _lstm_cell(
    x: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    hy, cy, _ = _aten._thnn_fused_lstm_cell(x.matmul(w_ih.t()), hx[0].matmul(w_hh.t()), hx[1], b_ih, b_hh)
    return hy, cy


def _gru_cell(
    x: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor | None = None, b_hh: Tensor | None = None
) -> Tensor:
    hy: Tensor = _aten._thnn_fused_gru_cell(x.matmul(w_ih.t()), hx.matmul(w_hh.t()), hx, b_ih, b_hh)[0]
    return hy


@composite("aten::lstm_cell", why="CUDA fuses the gates into one kernel that keeps them as its workspace")
def lstm_cell(
    cuda: Cuda,
    input: Tensor,
    hx: list[Tensor],
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
) -> tuple[Tensor, Tensor]:
    return _lstm_cell(input, hx, w_ih, w_hh, b_ih, b_hh)


@composite("aten::gru_cell", why="CUDA fuses the gates into one kernel that keeps five numbers an element")
def gru_cell(
    cuda: Cuda,
    input: Tensor,
    hx: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor | None,
    b_hh: Tensor | None,
) -> Tensor:
    return _gru_cell(input, hx, w_ih, w_hh, b_ih, b_hh)
