"""Which kernel `scaled_dot_product_attention` runs on a card.

The conditions are those of aten/src/ATen/native/transformers/cuda/sdp_utils.cpp as built into torch 2.14
(read from the source, and its messages found in that wheel's libtorch_cuda.so): every kernel has a list of
checks, and the first kernel of the priority order that passes its own is taken.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

import torch

from memlens.simulation.rules.common import HALVES

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

_DEFAULT_ORDER = [1, 2, 0, 3]  # flash, efficient, math, cuDNN (ATen/Context.h, sdp_priority_order)
_MAX_CUDNN_SIZE = 65535
NEWEST = (12, 1)  # compute capability: sm121 in check_sm_version of sdp_utils.cpp


class Kernel(IntEnum):
    """at::SDPBackend (ATen/SDPBackend.h)."""

    ERROR = -1
    MATH = 0
    FLASH = 1
    EFFICIENT = 2
    CUDNN = 3


@dataclass(frozen=True)
class Call:
    """One call of scaled_dot_product_attention, and the card's compute capability."""

    capability: tuple[int, int]
    query: Tensor
    key: Tensor
    value: Tensor
    mask: Tensor | None
    dropout: float
    causal: bool
    gqa: bool

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.query, self.key, self.value

    @functools.cached_property
    def requires_grad(self) -> bool:
        return torch.is_grad_enabled() and any(t.requires_grad for t in self.tensors)

    @property
    def is_nested(self) -> bool:
        return any(t.is_nested for t in self.tensors)


def choose(call: Call) -> Kernel:
    """The kernel that CUDA runs; ERROR where every allowed kernel refuses, as torch then raises."""
    for kernel in _order(call.capability):
        if kernel is Kernel.MATH:
            if torch._C._get_math_sdp_enabled():
                return kernel
        elif can_use(kernel, call):
            return kernel
    return Kernel.ERROR


def can_use(kernel: Kernel, call: Call) -> bool:
    """Whether a fused kernel takes this call (`torch.backends.cuda.can_use_flash_attention` and kin)."""
    return all(check(call) for check in _CHECKS[kernel])


def _order(capability: tuple[int, int]) -> list[Kernel]:
    """`priority_order`: cuDNN first on Hopper and Blackwell servers, unless the user set an order."""
    order = torch._C._get_sdp_priority_order()
    prefers = capability[0] in (9, 10) and os.environ.get("TORCH_CUDNN_SDPA_DEPRIORITIZED") != "1"
    if order[:4] == _DEFAULT_ORDER and prefers:
        return [Kernel.CUDNN, Kernel.FLASH, Kernel.EFFICIENT, Kernel.MATH]
    known = {int(kernel) for kernel in Kernel}
    return [Kernel(number) for number in order if number in known]


# checks, named as in sdp_utils.cpp ----------------------------------------------------------------------


def _is_4d(call: Call) -> bool:
    return all(t.dim() == 4 for t in call.tensors)


def _is_dense(call: Call) -> bool:
    return not call.is_nested


def _nonzero_lengths(call: Call) -> bool:
    return call.query.size(-2) != 0 and call.key.size(-2) != 0


def _same_batch_and_heads(call: Call) -> bool:
    if len({t.size(0) for t in call.tensors}) > 1:
        return False
    q, k, v = (t.size(-3) for t in call.tensors)
    return k == v and (q % k == 0 if call.gqa else q == k)


def _equal_heads(call: Call) -> bool:
    """`check_batch_size_and_num_heads_dense<supports_gqa=false>`: grouped queries go elsewhere."""
    return call.query.size(-3) == call.key.size(-3)


def _last_stride_is_1(call: Call, ignore_single: bool) -> bool:
    dense = all(t.stride(-1) == 1 for t in call.tensors) or (ignore_single and call.query.size(-1) == 1)
    return dense and (call.mask is None or call.mask.stride(-1) == 1)


def _low_precision(call: Call) -> bool:
    allowed = HALVES if call.capability >= (8, 0) else (torch.float16,)
    return call.query.dtype in allowed and len({t.dtype for t in call.tensors}) == 1


def _ampere_or_newer(call: Call) -> bool:
    return (8, 0) <= call.capability <= NEWEST


def _flash_head(call: Call) -> bool:
    return len({t.size(-1) for t in call.tensors}) == 1 and call.query.size(-1) <= 256


def _flash_backward_head(call: Call) -> bool:
    """Consumer Ampere, Ada and Blackwell cannot train heads of 193-224, nor larger ones with dropout."""
    small = (8, 6) <= call.capability <= (8, 9) or (12, 0) <= call.capability <= NEWEST
    head = call.query.size(-1)
    return not (call.requires_grad and small) or head <= 192 or (call.dropout == 0 and head > 224)


def _flash_causal_is_square(call: Call) -> bool:
    return not call.causal or call.query.size(-2) == call.key.size(-2)


def _alignment(call: Call) -> int:
    """minimum_gemm_alignment: elements that CUTLASS loads at a time."""
    half = call.query.dtype in HALVES
    tensor_cores = call.capability[0] >= 8 or (call.capability[0] == 7 and half)
    least = 4 if call.capability[0] >= 8 else 1
    return max(least, 128 // (16 if half else 32)) if tensor_cores else least


def _efficient_heads(call: Call) -> bool:
    align, q, k, v = _alignment(call), *(t.size(-1) for t in call.tensors)
    return q == k and q > 0 and v > 0 and q % align == 0 and v % align == 0


def _efficient_offsets(call: Call) -> bool:
    """Views that begin at an odd address cannot be read in aligned vectors."""
    if call.capability[0] < 8:
        return True
    return all(t.numel() == 0 or t.storage_offset() % _alignment(call) == 0 for t in call.tensors)


def _efficient_dtype(call: Call) -> bool:
    allowed = (*HALVES, torch.float32) if call.capability >= (8, 0) else (torch.float16, torch.float32)
    return call.query.dtype in allowed and len({t.dtype for t in call.tensors}) == 1


def _cudnn_mask(call: Call) -> bool:
    mask = call.mask
    if mask is None:
        return True
    if mask.requires_grad or mask.dim() not in (2, 4):
        return False
    sizes = (call.query.size(0), call.query.size(1), call.query.size(2), call.key.size(2))[-mask.dim() :]
    return all(have in (1, want) for have, want in zip(mask.shape, sizes, strict=True))


def _cudnn_shapes(call: Call) -> bool:
    batch, heads, length, d_qk = call.query.shape
    d_v = call.value.size(-1)
    server = call.capability == (9, 0) or (call.capability[0] == 10 and call.capability != (10, 7))
    limit = 256 if server else 128
    return (
        batch <= _MAX_CUDNN_SIZE
        and heads <= _MAX_CUDNN_SIZE
        and d_qk <= limit
        and d_v <= limit
        and d_qk % 8 == 0
        and d_v % 8 == 0
        and call.key.size(2) != 1
        and not (call.dropout and length == 1)
        and (not (server and call.requires_grad) or _cudnn_backward_heads(d_qk, d_v))
    )


def _cudnn_backward_heads(d_qk: int, d_v: int) -> bool:
    return max(d_qk, d_v) <= 128 or (d_qk, d_v) in ((192, 128), (256, 256))


def _may_be_nondeterministic(call: Call) -> bool:
    return not torch.are_deterministic_algorithms_enabled() or (
        torch.is_deterministic_algorithms_warn_only_enabled()
    )


_COMMON: list[Callable[[Call], bool]] = [_is_4d, _is_dense, _nonzero_lengths, _same_batch_and_heads]
_CHECKS: dict[Kernel, list[Callable[[Call], bool]]] = {
    Kernel.CUDNN: [
        lambda call: torch._C._get_cudnn_sdp_enabled(),
        *_COMMON,
        _may_be_nondeterministic,
        _low_precision,
        _cudnn_mask,
        _ampere_or_newer,
        lambda call: (call.dropout * 16).is_integer(),
        lambda call: _last_stride_is_1(call, ignore_single=True),
        _cudnn_shapes,
    ],
    Kernel.FLASH: [
        lambda call: torch._C._get_flash_sdp_enabled(),
        *_COMMON,
        lambda call: call.mask is None,
        _flash_head,
        _ampere_or_newer,
        _flash_backward_head,
        _flash_causal_is_square,
        _low_precision,
        lambda call: _last_stride_is_1(call, ignore_single=True),
    ],
    Kernel.EFFICIENT: [
        lambda call: torch._C._get_mem_efficient_sdp_enabled(),
        *_COMMON,
        _equal_heads,
        lambda call: (5, 0) <= call.capability <= NEWEST,
        _efficient_heads,
        _efficient_offsets,
        lambda call: _last_stride_is_1(call, ignore_single=False),
        _efficient_dtype,
    ],
}
