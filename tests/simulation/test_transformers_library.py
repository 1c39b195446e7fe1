"""Models of the transformers library: which attention each of its implementations runs."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

import memlens  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.zoo, pytest.mark.filterwarnings("ignore")]


def _operators(gpu: str, implementation: str, dtype=torch.bfloat16, mask: bool = False) -> set[str]:
    """Operators of one training step of a small Llama with grouped heads."""
    config = transformers.LlamaConfig(
        hidden_size=256,
        intermediate_size=512,
        num_hidden_layers=2,
        num_attention_heads=8,
        num_key_value_heads=2,
        vocab_size=1000,
        attn_implementation=implementation,
    )
    with memlens.simulate(gpu=gpu) as sim:
        model = transformers.LlamaForCausalLM(config).to(dtype).cuda()
        tokens = torch.zeros(2, 128, dtype=torch.long, device="cuda")
        given = {"attention_mask": torch.ones_like(tokens)} if mask else {}
        model(tokens, labels=tokens, **given).loss.backward()
        return {event.site.operator for event in sim.events if hasattr(event, "site")}


def test_sdpa_takes_flash_on_ampere_in_bfloat16() -> None:
    """No mask, or one that masks nothing, which is known: flash, and no softmax over scores."""
    for mask in (False, True):
        ran = _operators("A100 40GB", "sdpa", mask=mask)
        assert "_scaled_dot_product_flash_attention" in ran
        assert "_softmax" not in ran


def test_sdpa_takes_cudnn_on_hopper() -> None:
    """Hopper prefers cuDNN's kernel."""
    assert "_scaled_dot_product_cudnn_attention" in _operators("H100", "sdpa")


def test_eager_writes_the_scores_out() -> None:
    """The implementation named eager keeps the softmax."""
    ran = _operators("A100 40GB", "eager")
    assert "_softmax" in ran
    assert not any("scaled_dot_product" in name for name in ran)
