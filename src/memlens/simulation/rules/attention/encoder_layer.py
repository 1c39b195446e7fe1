"""The fast paths of nn.MultiheadAttention and nn.TransformerEncoderLayer in evaluation.

ATen/native/transformers/cuda/attention.cu (`native_multi_head_attention_cuda`) and
ATen/native/transformers/transformer.cpp (`transformer_encoder_layer_forward`).

Lives of the buffers, steps from left to right (B batch, L length, E width, H heads, F hidden width):

    attention, step by step      project  copy  q @ k  softmax  @ v  join  linear
    packed       B L 3E             #      #
    q, k, v    3 B L E                     #      #       #      #     #      #
    scores       B H L L                          #       #
    weights      B H L L                                  #      #   (longer if the caller wants them)
    joined       B L E                                                 #      #
    out          B L E                                                        #
    The values' sum goes into q. With a fused kernel: qkv, its output, joined, out, all to the end.

    layer, norm last             attention  norm 1  linear 1  linear 2  norm 2
    attended     B L E              #         #        (src is added in place)
    before       B L E                        #        #         #        #
    hidden       B L F                                 #         #
    sum          B L E                                           #        #
    out          B L E                                                    #
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from memlens.simulation.rules.attention.choice import Call, Kernel, choose
from memlens.simulation.rules.common import nbytes
from memlens.simulation.rules.registry import composite, operator

if TYPE_CHECKING:
    from torch import Tensor

    from memlens.simulation.core.cuda import Cuda


@composite("aten::_native_multi_head_attention", why="one fused operator on CUDA; meta has no kernel for it")
def multi_head_attention(
    cuda: Cuda,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None,
    need_weights: bool,
    average_attn_weights: bool,
) -> tuple[Tensor, Tensor | None]:
    batch, length, head = query.size(0), query.size(1), embed_dim // num_head
    itself = query is key and key is value
    if itself and head % 8 == 0 and not need_weights and mask is None:
        heads = query.view(batch, -1, num_head, head).transpose(1, 2)
        call = Call(cuda.gpu.compute_capability, heads, heads, heads, None, 0.0, False, False)
        if choose(call) not in (Kernel.MATH, Kernel.ERROR):
            parts = functional.linear(query, qkv_weight, qkv_bias).chunk(3, -1)
            q, k, v = (part.view(batch, -1, num_head, head).transpose(1, 2) for part in parts)
            attended = functional.scaled_dot_product_attention(q, k, v)
            joined = attended.transpose(1, 2).reshape(batch, -1, embed_dim)
            return functional.linear(joined, proj_weight, proj_bias), None
    packed = _project(query, key, value, embed_dim, qkv_weight)
    # _transform_bias_rescale_qkv adds the bias on the way
    q, k, v = torch.empty((3, batch, num_head, length, head), dtype=query.dtype, device="meta")
    del packed
    weights = torch.matmul(q, k.transpose(-2, -1)).softmax(-1)
    attended = torch.matmul(weights, v, out=q)
    if not need_weights:
        del weights
    joined = attended.transpose(1, 2).contiguous().view(batch, length, embed_dim)
    out = functional.linear(joined, proj_weight, proj_bias)
    if not need_weights:
        return out, None
    return out, weights.sum(1).div_(num_head) if average_attn_weights else weights


def _project(query: Tensor, key: Tensor, value: Tensor, embed_dim: int, weight: Tensor) -> Tensor:
    """qkv_projection: one product for self-attention, else parts that are joined."""
    if query is key and key is value:
        return query.matmul(weight.t())
    parts = weight.split(embed_dim)
    return torch.cat([x.matmul(w.t()) for x, w in zip((query, key, value), parts, strict=True)], -1)


@composite("aten::_transformer_encoder_layer_fwd", why="one operator on CUDA; meta has no kernel for it")
def encoder_layer(
    cuda: Cuda,
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None,
) -> Tensor:
    def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return functional.layer_norm(x, (embed_dim,), weight, bias, eps)

    x = norm(src, norm_weight_1, norm_bias_1) if norm_first else src
    attention = (embed_dim, num_heads, qkv_weight, qkv_bias, proj_weight, proj_bias, mask, False, True)
    x = multi_head_attention(cuda, x, x, x, *attention)[0]
    x.add_(src)
    x = x if norm_first else norm(x, norm_weight_1, norm_bias_1)
    before = x
    x = norm(x, norm_weight_2, norm_bias_2) if norm_first else x
    flat = x.reshape(-1, embed_dim)
    hidden = torch.ops.aten._addmm_activation(ffn_bias_1, flat, ffn_weight_1.t(), use_gelu=use_gelu)
    del x, flat
    x = functional.linear(hidden, ffn_weight_2, ffn_bias_2).view(src.shape)
    del hidden
    x.add_(before)
    return x if norm_first else norm(x, norm_weight_2, norm_bias_2)


@operator("aten::_nested_tensor_from_mask_left_aligned")
def left_aligned(cuda: Cuda, t: Tensor, mask: Tensor) -> bool:
    """Whether padding is at the end, so that nn.TransformerEncoder removes it: data decides; taken as no."""
    if not t.is_meta:
        return bool(torch.ops.aten._nested_tensor_from_mask_left_aligned.default(t, mask))
    cuda.assume(
        f"nn.TransformerEncoder is taken to compute on padding too ({cuda.where})",
        "how much of it is padding depends on data; nested tensors without it need less",
        low_bytes=-nbytes(t),
    )
    return False
