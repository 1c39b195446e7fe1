"""`scaled_dot_product_attention` as CUDA runs it: the chosen kernel, its padding, and the math path.

ATen/native/transformers/attention.cpp. What the kernels allocate beside their outputs is in
`attention_kernels`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from memlens.simulation.rules.attention.choice import Call, Kernel, choose
from memlens.simulation.rules.common import HALVES
from memlens.simulation.rules.registry import composite, operator

if TYPE_CHECKING:
    from torch import Tensor

    from memlens.simulation.core.cuda import Cuda

_aten = torch.ops.aten
_BIAS_ALIGNMENT = 16  # mem_eff_alignment
_CUDNN_MINUS_INFINITY = -65504.0


@composite(
    "aten::scaled_dot_product_attention",
    why="CUDA chooses a fused kernel by card, dtype, head size, mask and switches; meta always takes math",
)
def attention(
    cuda: Cuda,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Tensor:
    _validate(cuda, query, key, value, attn_mask)
    kernel = choose(
        Call(cuda.gpu.compute_capability, query, key, value, attn_mask, dropout_p, is_causal, enable_gqa)
    )
    if kernel is Kernel.ERROR:
        raise RuntimeError("No available kernel. Aborting execution.")
    minus_infinity = _CUDNN_MINUS_INFINITY if kernel is Kernel.CUDNN else -math.inf
    mask = _additive(attn_mask, query.dtype, minus_infinity)
    keep = torch.is_grad_enabled() and any(t.requires_grad for t in (query, key, value))
    if kernel is Kernel.FLASH:
        return _flash(query, key, value, dropout_p, is_causal, scale)
    if kernel is Kernel.EFFICIENT:
        mask = None if mask is None else _aligned(mask, query, key)
        return _aten._scaled_dot_product_efficient_attention(
            query, key, value, mask, keep, dropout_p, is_causal, scale=scale
        )[0]
    if kernel is Kernel.CUDNN:
        return _aten._scaled_dot_product_cudnn_attention(
            query, key, value, mask, keep, dropout_p, is_causal, False, scale=scale
        )[0]
    return _math(query, key, value, mask, dropout_p, is_causal, scale, enable_gqa)[0]


@composite(
    "aten::_scaled_dot_product_attention_math",
    why="the mask is added in place, which C++ does not do while a dispatch mode watches",
)
def attention_math(
    cuda: Cuda,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> tuple[Tensor, Tensor]:
    return _math(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


@operator("aten::_fused_sdp_choice")
def fused_choice(
    cuda: Cuda,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    enable_gqa: bool,
) -> int:
    """The number of the kernel that would run."""
    capability = cuda.gpu.compute_capability
    return int(choose(Call(capability, query, key, value, attn_mask, dropout_p, is_causal, enable_gqa)))


def _validate(cuda: Cuda, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> None:
    devices = ["cuda:0" if cuda.has(t) else "cpu" for t in (query, key, value)]
    if len(set(devices)) > 1:
        raise RuntimeError(
            "Expected query, key, and value to have the same device type, but got query.device: "
            f"{devices[0]} key.device: {devices[1]} and value.device: {devices[2]} instead."
        )
    dtypes = [t.dtype for t in (query, key, value)]
    if len(set(dtypes)) > 1:
        raise RuntimeError(
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            f"{dtypes[0]} key.dtype: {dtypes[1]} and value.dtype: {dtypes[2]} instead."
        )
    if mask is not None and mask.dtype not in (torch.bool, query.dtype, torch.float32):
        raise RuntimeError(
            "Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: "
            f"{mask.dtype} and  query.dtype: {query.dtype} instead."
        )


def _additive(mask: Tensor | None, dtype: torch.dtype, minus_infinity: float) -> Tensor | None:
    """convert_boolean_attn_mask: a bool mask becomes one of the query's dtype."""
    if mask is None or mask.dtype is not torch.bool:
        return mask
    zero = torch.zeros((), dtype=dtype, device="meta")
    return torch.where(mask.logical_not(), minus_infinity, zero)


def _padded(tensor: Tensor) -> Tensor:
    """pad_last_dim<8>: flash wants head sizes that are multiples of 8."""
    rest = -tensor.size(-1) % 8
    return functional.pad(tensor, (0, rest)) if rest else tensor


def _flash(
    query: Tensor, key: Tensor, value: Tensor, dropout_p: float, causal: bool, scale: float | None
) -> Tensor:
    head = query.size(-1)
    scale = 1 / math.sqrt(head) if scale is None else scale
    query, key, value = _padded(query), _padded(key), _padded(value)
    out: Tensor = _aten._scaled_dot_product_flash_attention(
        query, key, value, dropout_p, causal, False, scale=scale
    )[0]
    return out[..., :head] if out.size(-1) != head else out


def _aligned(mask: Tensor, query: Tensor, key: Tensor) -> Tensor:
    """preprocess_mask: rows of the bias must be 16 elements apart, or it is copied so that they are."""
    mask = mask.expand(query.size(0), query.size(1), query.size(2), key.size(2))
    last = mask.size(-1)
    if last % _BIAS_ALIGNMENT:
        return functional.pad(mask, (0, _BIAS_ALIGNMENT - last % _BIAS_ALIGNMENT))[..., :last]
    if any(stride % _BIAS_ALIGNMENT for stride in mask.stride()[:3]):
        return mask.contiguous()
    return mask


def _math(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    dropout_p: float,
    causal: bool,
    scale: float | None,
    gqa: bool,
) -> tuple[Tensor, Tensor]:
    """_scaled_dot_product_attention_math: halves in float32 unless reduction in half is allowed."""
    dtype = query.dtype
    if dtype in HALVES and not torch._C._get_math_sdp_allow_fp16_bf16_reduction():
        query, key, value = query.float(), key.float(), value.float()
    root = math.sqrt(1 / math.sqrt(query.size(-1)) if scale is None else abs(scale))
    query = query * (-root if scale is not None and scale < 0 else root)
    if causal:
        lengths = (query.size(-2), key.size(-2))
        mask = torch.ones(lengths, dtype=torch.bool, device="meta").tril()
        mask = _additive(mask, query.dtype, -math.inf)
    if gqa:
        key = key.repeat_interleave(query.size(-3) // key.size(-3), -3)
        value = value.repeat_interleave(query.size(-3) // value.size(-3), -3)
    weights = query.matmul(key.transpose(-2, -1) * root)
    del key
    if mask is not None:
        weights.add_(mask)
    weights = _aten._safe_softmax(weights, -1)
    if dropout_p > 0:
        weights = torch.dropout(weights, dropout_p, True)
    return weights.matmul(value).to(dtype), weights.to(dtype)
