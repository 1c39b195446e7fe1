"""What the fused attention kernels allocate beside their outputs.

Flash: csrc of aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp (`mha_fwd`, `mha_bwd`,
`set_params_splitkv`). Memory-efficient: attention.cu, attention_backward.cu and
mem_eff_attention/kernel_{forward,backward}.h. cuDNN's workspace is asked of the library at run time; what is
counted here is what its backward needs by construction, and stated as an assumption.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch

from memlens.model import Assumption, Category
from memlens.simulation.rules.attention.choice import HALVES
from memlens.simulation.rules.registry import operator, scratch

if TYPE_CHECKING:
    from torch import Tensor

    from memlens.simulation.core.session import Simulation

FLOAT_BYTES = 4
_FLASH_BLOCK = 128  # rows of the query are rounded up to this in softmax_lse and dq_accum
_LSE_ALIGNMENT = 32  # kAlignLSE
_RF_HEAD = 128  # heads up to this stay in registers in the memory-efficient kernels
# (largest head, kBlockSizeI, kBlockSizeJ) of the backward kernels, mem_eff_attention/kernels/cutlassB.h
_BACKWARD_BLOCKS = ((64, 64, 64), (96, 128, 128), (128, 128, 64), (65536, 64, 64))


def _up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple


def _bytes(tensor: Tensor) -> int:
    return tensor.numel() * tensor.element_size()


def _copy_bytes(tensor: Tensor) -> int:
    """What `.contiguous()` of a (batch, heads, length, head) tensor as (batch, length, heads, head) costs."""
    return 0 if tensor.transpose(1, 2).is_contiguous() else _bytes(tensor)


def _rounded_head(head: int) -> int:
    return _up(head, 32) if head <= 192 else 256


# flash --------------------------------------------------------------------------------------------------


@scratch("aten::_scaled_dot_product_flash_attention", why="few queries: keys are split over multiprocessors")
def flash_forward(sim: Simulation, args: Any, kwargs: Any, out: Any) -> tuple[int, ...]:
    query, key = args[0], args[1]
    batch, heads, length, head = query.shape
    if length == 1 and heads > key.size(1) and not _dropout(args, kwargs, 3):
        heads, length = key.size(1), heads // key.size(1)  # seqlenq_ngroups_swapped
    if _dropout(args, kwargs, 3):
        return ()
    splits = splits_of_keys(batch * heads * -(-length // 64), sim.gpu.multiprocessors * 2, key.size(2), head)
    if splits <= 1:
        return ()
    rows = splits * batch * heads * length * FLOAT_BYTES
    return rows, rows * _rounded_head(head)


def _dropout(args: Any, kwargs: Any, position: int) -> float:
    return args[position] if len(args) > position else kwargs.get("dropout_p", 0.0)


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
def flash_backward(sim: Simulation, args: Any, kwargs: Any, out: Any) -> tuple[int, ...]:
    grad, query, key, value, attended = args[:5]
    batch, heads, length, head = query.shape
    rows = batch * heads * _up(length, _FLASH_BLOCK) * FLOAT_BYTES
    copies = 1
    if torch.are_deterministic_algorithms_enabled():
        copies = -(-sim.gpu.multiprocessors // (batch * heads)) or 1
    expanded = (0, 0)
    if key.size(1) != heads:
        expanded = (_bytes(key) // key.size(1) * heads, _bytes(value) // value.size(1) * heads)
    return (
        _copy_bytes(grad),
        _copy_bytes(attended),
        rows,
        rows * _rounded_head(head) * copies,
        *expanded,
    )


# memory-efficient ---------------------------------------------------------------------------------------


@operator("aten::_scaled_dot_product_efficient_attention")
def efficient_forward(sim: Simulation, args: Any, kwargs: Any) -> Any:
    """Output, log of sums (rows padded to 32), and seed and offset on the host."""
    query, value, keep = args[0], args[2], args[4]
    batch, heads, length, _ = query.shape
    head = value.size(-1)
    out = torch.empty((batch, length, heads, head), dtype=query.dtype, device="meta")
    rows = _up(length, _LSE_ALIGNMENT) if keep else 0
    sums = torch.empty((batch, heads, rows), dtype=torch.float32, device="meta")
    for tensor in (out, sums):
        sim.adopt(tensor, "_scaled_dot_product_efficient_attention")
    if max(head, query.size(-1)) > _RF_HEAD and query.dtype in HALVES:
        _transient(sim, out.numel() * FLOAT_BYTES, "_scaled_dot_product_efficient_attention")
    seed = torch.empty((), dtype=torch.long)
    return out.transpose(1, 2), sums, seed, torch.empty_like(seed)


def _transient(sim: Simulation, nbytes: int, name: str) -> None:
    sim.ledger.scratch(nbytes, Category.TEMPORARY, sim.site(name), sim.stream)()


@scratch(
    "aten::_scaled_dot_product_efficient_attention_backward",
    why="row sums of grad x out; halves sum the query's gradient in float32",
)
def efficient_backward(sim: Simulation, args: Any, kwargs: Any, out: Any) -> tuple[int, ...]:
    grad, query, key, value = args[:4]
    batch, heads, length, _ = query.shape
    rows = batch * heads * length * FLOAT_BYTES
    expanded = (0, 0)
    if key.size(1) != heads:  # grouped heads are written out before, and their gradients summed after
        expanded = (_bytes(key) // key.size(1) * heads, _bytes(value) // value.size(1) * heads)
    if query.dtype not in HALVES:
        return _copy_bytes(grad), rows * value.size(-1), rows, *expanded
    return _copy_bytes(grad), rows, workspace_bytes(query, key, value), *expanded


def workspace_bytes(query: Tensor, key: Tensor, value: Tensor) -> int:
    """Params::workspace_size of kernel_backward.h for halves: tiles of dq; dk, dv for large heads."""
    batch, heads, length, head = query.shape
    head_v = value.size(-1)
    _, block_i, block_j = next(row for row in _BACKWARD_BLOCKS if max(head, head_v) <= row[0])
    tile = 16 + block_i * block_j * FLOAT_BYTES  # a lock and a counter, padded, before each tile
    elements = -(-length // block_i) * -(-head // block_j) * tile // FLOAT_BYTES
    if max(head, head_v) > _RF_HEAD:
        splits = max(1, min(-(-key.size(2) // block_j), 200 // (batch * heads)))
        columns = _up(head, block_i) + _up(head_v, block_i)
        elements += splits * _up(key.size(2), block_j) * columns
    return batch * heads * _up(elements, 4) * FLOAT_BYTES


# cuDNN --------------------------------------------------------------------------------------------------


@scratch(
    "aten::_scaled_dot_product_cudnn_attention_backward",
    why="cuDNN sums dq in float32 and needs a float per row",
    category=Category.WORKSPACE,
)
def cudnn_backward(sim: Simulation, args: Any, kwargs: Any, out: Any) -> int:
    query = args[1]
    nbytes = _bytes(query) // query.element_size() * FLOAT_BYTES
    nbytes += query.shape[:-1].numel() * FLOAT_BYTES
    sim.assume(
        Assumption(
            "cuDNN's attention backward takes one float32 copy of the query's gradient as workspace",
            "the size is the library's choice, made on the card; only what its algorithm needs is counted",
            -nbytes,
            nbytes,
        )
    )
    return nbytes


# math ---------------------------------------------------------------------------------------------------


@scratch("aten::_safe_softmax", why="softmax, a mask of -inf and its rows live until the result is chosen")
def safe_softmax(sim: Simulation, args: Any, kwargs: Any, out: Any) -> tuple[int, ...]:
    return _bytes(out), 1, out.numel(), -(-out.numel() // max(out.size(args[1]), 1)), 1
