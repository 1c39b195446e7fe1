"""Generation: what the key/value cache takes, dynamic and static, checked against its formula."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import memlens
from memlens.errors import UsageError
from memlens.scenarios.script.predict_script import Script, predict_script

pytestmark = [pytest.mark.torch, pytest.mark.zoo, pytest.mark.filterwarnings("ignore")]
LAYERS, HEADS, HEAD, PROMPT = 2, 8, 64, 64


@pytest.fixture
def target(tmp_path: Path) -> str:
    """A small Llama with 8 heads of 64, in bfloat16."""
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HEADS * HEAD,
        "intermediate_size": 1024, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS, "vocab_size": 1000, "max_position_embeddings": 4096,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    return f"hf:{tmp_path / 'config.json'}"


def end_bytes(target: str, new_tokens: int, cache: str) -> int:
    prediction = memlens.predict(
        target, mode="inference", seq_len=PROMPT, batch_size=4, precision="bf16", gpu="A100 40GB",
        new_tokens=new_tokens, cache=cache,
    )  # fmt: skip
    return prediction.peak.allocated_bytes


def cache_bytes(tokens: int) -> int:
    """Keys and values, two bytes a number, of every layer and head, batch 4."""
    return 2 * LAYERS * 4 * HEADS * HEAD * 2 * tokens


def test_a_static_cache_is_made_for_all_tokens(target: str) -> None:
    """1,024 more tokens make a static cache larger by exactly their keys and values, and scores by little."""
    grown = end_bytes(target, 2048, "static") - end_bytes(target, 1024, "static")
    assert grown == pytest.approx(cache_bytes(1024), rel=0.1)


def test_a_dynamic_cache_is_copied_as_it_grows(target: str) -> None:
    """While one layer's cache is concatenated it is there twice: the peak grows by more than it."""
    grown = end_bytes(target, 2048, "dynamic") - end_bytes(target, 1024, "dynamic")
    assert cache_bytes(1024) <= grown <= 2.1 * cache_bytes(1024)


def test_a_script_that_generates(target: str, tmp_path: Path) -> None:
    """`model.generate()` ends at its length: the prompt's 64 tokens and 16 more, though no value says so."""
    script = tmp_path / "talk.py"
    script.write_text(
        "import torch\nfrom transformers import AutoConfig, LlamaForCausalLM\n"
        f"config = AutoConfig.from_pretrained({target.removeprefix('hf:')!r})\n"
        "model = LlamaForCausalLM(config).to('cuda', torch.bfloat16).eval()\n"
        "ids = torch.randint(0, 1000, (4, 64), device='cuda')\n"
        "out = model.generate(ids, max_new_tokens=16, do_sample=True, pad_token_id=0)\n"
        "assert out.shape == (4, 80), out.shape\n"
    )
    prediction = predict_script(Script(str(script), max_seconds=60), gpu="T4")
    assert prediction.peak.allocated_bytes > cache_bytes(80)


def test_new_tokens_in_training(target: str) -> None:
    """Training generates nothing."""
    with pytest.raises(UsageError, match="no meaning in training"):
        memlens.predict(target, new_tokens=8)


def test_a_cache_without_generation(target: str) -> None:
    """A cache that nothing fills is an error."""
    with pytest.raises(UsageError, match="without new tokens"):
        memlens.predict(target, mode="inference", cache="static")
