"""What the fused attention kernels allocate beside their outputs.

Flash: csrc of aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp (`mha_fwd`, `mha_bwd`,
`set_params_splitkv`). Memory-efficient: attention.cu, attention_backward.cu and
mem_eff_attention/kernel_{forward,backward}.h. cuDNN's workspace is asked of the library at run time; what is
counted here is what its backward needs by construction, and stated as an assumption.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from memlens.simulation.rules.common import HALVES, Sizes, nbytes, round_up
from memlens.simulation.rules.registry import operator, scratch
from memlens.simulation.rules.uncertain_workspace import take

if TYPE_CHECKING:
    from torch import Tensor

    from memlens.simulation.core.cuda import Cuda

FLOAT_BYTES = 4
_FLASH_BLOCK = 128  # rows of the query are rounded up to this in softmax_lse and dq_accum
_LSE_ALIGNMENT = 32  # kAlignLSE
_RF_HEAD = 128  # heads up to this stay in registers in the memory-efficient kernels
# (largest head, kBlockSizeI, kBlockSizeJ) of the backward kernels, mem_eff_attention/kernels/cutlassB.h
_BACKWARD_BLOCKS = ((64, 64, 64), (96, 128, 128), (128, 128, 64), (65536, 64, 64))


def _copy_bytes(tensor: Tensor) -> int:
    """What `.contiguous()` of a (batch, heads, length, head) tensor as (batch, length, heads, head) costs."""
    return 0 if tensor.transpose(1, 2).is_contiguous() else nbytes(tensor)


def _rounded_head(head: int) -> int:
    return round_up(head, 32) if head <= 192 else 256


# flash --------------------------------------------------------------------------------------------------


@scratch("aten::_scaled_dot_product_flash_attention", why="few queries: keys are split over multiprocessors")
def flash_forward(cuda: Cuda, query: Tensor, key: Tensor, dropout_p: float) -> Sizes:
    if dropout_p:
        return ()
    batch, heads, length, head = query.shape
    if length == 1 and heads > key.size(1):
        heads, length = key.size(1), heads // key.size(1)  # seqlenq_ngroups_swapped
    splits = splits_of_keys(batch * heads * -(-length // 64), cuda.gpu.multiprocessors * 2, key.size(2), head)
    if splits <= 1:
        return ()
    rows = splits * batch * heads * length * FLOAT_BYTES
    return rows, rows * _rounded_head(head)


def splits_of_keys(blocks: int, slots: int, keys: int, head: int) -> int:
    """num_splits_heuristic: how many parts the keys are split into, so that every multiprocessor works."""
    if slots == 0 or blocks >= 0.8 * slots:
        return 1
    columns = -(-keys // (256 if head <= 64 else 128 if head <= 128 else 64))
    most = min(128, slots, columns)
    eligible = [n for n in range(1, most + 1) if n == 1 or -(-columns // n) != -(-columns // (n - 1))]
    waves = {n: blocks * n / slots for n in eligible}
    efficiency = {n: w / math.ceil(w) for n, w in waves.items()}
    best = max(efficiency.values())
    return next(n for n in eligible if efficiency[n] >= 0.85 * best)


@scratch(
    "aten::_scaled_dot_product_flash_attention_backward",
    why="dq is summed in float32; grouped heads get a dk and dv each",
)
def flash_backward(
    cuda: Cuda, grad_out: Tensor, query: Tensor, key: Tensor, value: Tensor, out: Tensor
) -> Sizes:
    batch, heads, length, head = query.shape
    rows = batch * heads * round_up(length, _FLASH_BLOCK) * FLOAT_BYTES
    copies = 1
    if torch.are_deterministic_algorithms_enabled():
        copies = -(-cuda.gpu.multiprocessors // (batch * heads)) or 1
    return (
        _copy_bytes(grad_out),
        _copy_bytes(out),
        rows,
        rows * _rounded_head(head) * copies,
        *_expanded_bytes(heads, key, value),
    )


def _expanded_bytes(heads: int, key: Tensor, value: Tensor) -> Sizes:
    """Bytes of keys and values, or of their gradients, with a head of their own for each of the query's."""
    if key.size(1) == heads:
        return 0, 0
    return nbytes(key) // key.size(1) * heads, nbytes(value) // value.size(1) * heads


# memory-efficient ---------------------------------------------------------------------------------------


@operator("aten::_scaled_dot_product_efficient_attention")
def efficient_forward(
    cuda: Cuda, query: Tensor, value: Tensor, compute_log_sumexp: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Output, log of sums (rows padded to 32), and seed and offset on the host."""
    batch, heads, length, _ = query.shape
    head = value.size(-1)
    out = cuda.new((batch, length, heads, head), query.dtype)
    rows = round_up(length, _LSE_ALIGNMENT) if compute_log_sumexp else 0
    sums = cuda.new((batch, heads, rows), torch.float32)
    if max(head, query.size(-1)) > _RF_HEAD and query.dtype in HALVES:
        cuda.scratch(out.numel() * FLOAT_BYTES)
    seed = torch.empty((), dtype=torch.long)
    return out.transpose(1, 2), sums, seed, torch.empty_like(seed)


@scratch(
    "aten::_scaled_dot_product_efficient_attention_backward",
    why="row sums of grad x out; halves sum the query's gradient in float32",
)
def efficient_backward(cuda: Cuda, grad_out_: Tensor, query: Tensor, key: Tensor, value: Tensor) -> Sizes:
    batch, heads, length, _ = query.shape
    rows = batch * heads * length * FLOAT_BYTES
    # grouped heads are written out before, and their gradients summed after
    expanded = _expanded_bytes(heads, key, value)
    if query.dtype not in HALVES:
        return _copy_bytes(grad_out_), rows * value.size(-1), rows, *expanded
    return _copy_bytes(grad_out_), rows, workspace_bytes(query, key, value), *expanded


def workspace_bytes(query: Tensor, key: Tensor, value: Tensor) -> int:
    """Params::workspace_size of kernel_backward.h for halves: tiles of dq; dk, dv for large heads."""
    batch, heads, length, head = query.shape
    head_v = value.size(-1)
    _, block_i, block_j = next(row for row in _BACKWARD_BLOCKS if max(head, head_v) <= row[0])
    tile = 16 + block_i * block_j * FLOAT_BYTES  # a lock and a counter, padded, before each tile
    elements = -(-length // block_i) * -(-head // block_j) * tile // FLOAT_BYTES
    if max(head, head_v) > _RF_HEAD:
        splits = max(1, min(-(-key.size(2) // block_j), 200 // (batch * heads)))
        columns = round_up(head, block_i) + round_up(head_v, block_i)
        elements += splits * round_up(key.size(2), block_j) * columns
    return batch * heads * round_up(elements, 4) * FLOAT_BYTES


# cuDNN --------------------------------------------------------------------------------------------------


@scratch(
    "aten::_scaled_dot_product_cudnn_attention_backward",
    why="cuDNN sums dq in float32 and needs a float per row",
)
def cudnn_backward(cuda: Cuda, query: Tensor) -> int:
    size = query.numel() * FLOAT_BYTES + query.shape[:-1].numel() * FLOAT_BYTES
    take(cuda, "cudnn attention", cuda.operator, (0, size, 2 * size), _say_cudnn)
    return 0


def _say_cudnn(calls: int) -> tuple[str, str]:
    return (
        f"cuDNN's attention takes one float32 copy of the query's gradient in {calls:,} backward calls",
        "the size is the library's choice, made on the card; only what its algorithm needs is counted",
    )


# math ---------------------------------------------------------------------------------------------------


@scratch("aten::_safe_softmax", why="softmax, a mask of -inf and its rows live until the result is chosen")
def safe_softmax(cuda: Cuda, dim: int, outputs: Tensor) -> Sizes:
    rows = -(-outputs.numel() // max(outputs.size(dim), 1))
    return nbytes(outputs), 1, outputs.numel(), rows, 1
