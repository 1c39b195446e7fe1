"""Attention that torch decides in Python: causal biases that are no masks, and jagged tensors."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch.nn.attention.bias import CausalBias, causal_lower_right, causal_upper_left  # noqa: E402

import memlens  # noqa: E402
from memlens.errors import UnsupportedOperator  # noqa: E402

pytestmark = pytest.mark.torch


def qkv(queries: int, keys: int, head: int = 64, dtype: torch.dtype = torch.float16):
    """Two samples with four heads on the card, trained."""
    return [
        torch.empty(2, 4, n, head, dtype=dtype, device="cuda", requires_grad=True)
        for n in (queries, keys, keys)
    ]


def peak(bias, queries: int, keys: int, **more) -> int:
    """What attention and its backward need beside their inputs."""
    with memlens.simulate("A100 40GB"):
        q, k, v = qkv(queries, keys, **more)
        torch.ones(2, 2, device="cuda") @ torch.ones(2, 2, device="cuda")
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        mask = None if bias is None else bias(queries, keys)
        F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=bias is None).sum().backward()
        return torch.cuda.max_memory_allocated() - before


def test_an_upper_left_bias_is_is_causal() -> None:
    """The same kernel, the same bytes: there is no mask."""
    assert peak(causal_upper_left, 128, 128) == peak(None, 128, 128)


def test_a_lower_right_bias_makes_no_mask() -> None:
    """Flash in half precision and the memory-efficient kernel in float32 know it; 4 MiB less than a mask."""

    def written(queries: int, keys: int) -> torch.Tensor:
        return torch.ones(queries, keys, dtype=torch.bool, device="cuda").tril(keys - queries)

    for dtype, bytes_each in ((torch.float16, 2), (torch.float32, 4)):
        saved = peak(written, 1024, 2048, dtype=dtype) - peak(causal_lower_right, 1024, 2048, dtype=dtype)
        assert saved >= 1024 * 2048 * bytes_each


def test_a_lower_right_bias_becomes_a_mask_where_no_kernel_knows_it() -> None:
    """Heads of 15 in float32 fit no fused kernel: scores and a mask."""
    assert peak(causal_lower_right, 256, 512, head=15, dtype=torch.float32) > 2 * 4 * 256 * 512 * 4


def test_biases_are_torch_s_again_afterwards() -> None:
    """Made outside a simulation they are real, as they were."""
    with memlens.simulate("T4"):
        assert isinstance(causal_upper_left(3, 3), CausalBias)
    bias = causal_lower_right(2, 3)
    out = F.scaled_dot_product_attention(*(torch.ones(1, 1, n, 8) for n in (2, 3, 3)), attn_mask=bias)
    assert out.flatten().tolist() == [1.0] * 16


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_attention_of_jagged_tensors_is_refused_by_name() -> None:
    """With a way out that needs no less."""
    with memlens.simulate("A100 40GB"):
        samples = [torch.randn(length, 2, 16) for length in (3, 5)]
        jagged = torch.nested.nested_tensor(samples, layout=torch.jagged, device="cuda").transpose(1, 2)
        with pytest.raises(UnsupportedOperator, match=r"nested tensors.*\n.*to_padded_tensor"):
            F.scaled_dot_product_attention(jagged, jagged, jagged)
