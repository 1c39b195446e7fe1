"""Models by name: what they are fed, that they run, and that nothing is downloaded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

import memlens
from memlens.errors import MemlensError, UsageError
from memlens.model import Category

pytestmark = [pytest.mark.torch, pytest.mark.zoo]

SMALL = {
    "gpt2": {
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "n_layer": 2, "n_embd": 64, "n_head": 2,
    },
    "bert": {
        "model_type": "bert", "architectures": ["BertForSequenceClassification"], "num_hidden_layers": 2,
        "hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 128,
    },
    "t5": {
        "model_type": "t5", "architectures": ["T5ForConditionalGeneration"], "num_layers": 1, "d_model": 64,
        "d_ff": 128, "num_heads": 2, "d_kv": 32, "decoder_start_token_id": 0,
    },
    "vit": {
        "model_type": "vit", "architectures": ["ViTForImageClassification"], "num_hidden_layers": 1,
        "hidden_size": 64, "num_attention_heads": 2, "image_size": 96, "intermediate_size": 128,
    },
    "llama": {
        "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2,
        "intermediate_size": 128, "vocab_size": 1000, "max_position_embeddings": 8192,
        "torch_dtype": "bfloat16",
    },
}  # fmt: skip
INPUTS = {
    "gpt2": ["input_ids=int64:1024", "labels=int64:1024"],
    "bert": ["input_ids=int64:512", "labels=int64:"],
    "t5": ["input_ids=int64:1024", "labels=int64:1024"],
    "vit": ["pixel_values=3x96x96", "labels=int64:"],
    "llama": ["input_ids=int64:1024", "labels=int64:1024"],
}


@pytest.fixture
def config(tmp_path: Path):
    """Writes a config.json and gives its target."""
    pytest.importorskip("transformers")

    def write(**values: object) -> str:
        path = tmp_path / "config.json"
        path.write_text(json.dumps(values))
        return f"hf:{path}"

    return write


@pytest.mark.parametrize("kind", SMALL)
@pytest.mark.parametrize("mode", ["train", "inference"])
def test_a_config_is_enough(config, kind: str, mode: str) -> None:
    """Each kind of model trains on its own loss and runs, with the inputs its config tells."""
    found = memlens.predict(config(**SMALL[kind]), batch_size=2, gpu="A100 40GB", mode=mode)
    if mode == "train":
        assert found.scenario["inputs"] == INPUTS[kind]
        assert found.scenario["loss"] == "output.loss"
    else:
        assert found.scenario["inputs"][0] == INPUTS[kind][0]
    assert sum(found.breakdown.values()) == found.peak.process_bytes
    assert found.breakdown[Category.PARAMETER] > 0


def test_the_dtype_is_the_configs_unless_one_is_asked_for(config) -> None:
    """bf16 in the config is bf16 weights; fp32 doubles them."""
    target = config(**SMALL["llama"], architectures=["LlamaForCausalLM"])
    built = memlens.predict(target, gpu="A100 40GB", seq_len=64)
    single = memlens.predict(target, gpu="A100 40GB", seq_len=64, precision="fp32")
    assert built.scenario["precision"] == "bf16"
    assert built.scenario["inputs"][0] == "input_ids=int64:64"
    ratio = single.breakdown[Category.PARAMETER] / built.breakdown[Category.PARAMETER]
    assert 1.95 < ratio < 2.05


def test_transformers_checkpointing_is_its_own(config) -> None:
    """The model's own switch is used, and less is kept."""
    target = config(**{**SMALL["gpt2"], "n_layer": 8, "vocab_size": 100})
    plain = memlens.predict(target, batch_size=4, gpu="4090")
    less = memlens.predict(target, batch_size=4, gpu="4090", grad_checkpointing=True)
    assert less.peak.allocated_bytes < 0.6 * plain.peak.allocated_bytes
    assert any(a.what == "checkpointing as transformers does it" for a in less.assumptions)


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"hidden_size": 3}, "is not a config of transformers"),
        ({"model_type": "no_such_kind"}, "is not a config of transformers"),
        ({"model_type": "clip", "architectures": ["CLIPModel"]}, "CLIPModel takes images and text"),
        (
            {"model_type": "segformer", "architectures": ["SegformerForSemanticSegmentation"]},
            "the config does not say how large pixel_values",
        ),
    ],
)
def test_a_config_that_does_not_tell_is_one_clear_error(config, values: dict, says: str) -> None:
    """Not a guess, and not a traceback."""
    with pytest.raises(MemlensError, match=says):
        memlens.predict(config(**values), gpu="4090")


def test_a_length_beyond_the_positions_is_refused(config) -> None:
    """GPT-2 has 1,024 learned positions."""
    with pytest.raises(UsageError, match="--seq-len 4096 is longer than the 1024 positions"):
        memlens.predict(config(**SMALL["gpt2"]), gpu="4090", seq_len=4096)


def test_a_setting_of_the_config_can_be_changed(config) -> None:
    """`--model-arg` reaches the config; a wrong name gets the nearest."""
    target = config(**SMALL["llama"])
    two = memlens.predict(target, gpu="4090", mode="inference").breakdown[Category.PARAMETER]
    four = memlens.predict(target, gpu="4090", mode="inference", model_args={"num_hidden_layers": 4})
    assert four.breakdown[Category.PARAMETER] > two
    with pytest.raises(UsageError, match="unknown setting of LlamaConfig 'num_hiden_layers'"):
        memlens.predict(target, gpu="4090", model_args={"num_hiden_layers": 4})


def test_eager_attention_keeps_its_scores(config) -> None:
    """`attn_implementation=eager` reaches the model: 512 x 512 scores a head and layer are kept."""
    target = config(**SMALL["bert"])
    fused = memlens.predict(target, batch_size=8, gpu="4090")
    eager = memlens.predict(target, batch_size=8, gpu="4090", model_args={"attn_implementation": "eager"})
    scores = 8 * 2 * 512 * 512 * 4  # batch x heads x length x length x 4 bytes, in each of 2 layers
    more = eager.breakdown[Category.ACTIVATION] - fused.breakdown[Category.ACTIVATION]
    assert more >= 2 * scores
    with pytest.raises(MemlensError, match="could not be built"):
        memlens.predict(target, gpu="4090", model_args={"attn_implementation": "eagre"})


@pytest.mark.parametrize(
    ("target", "shape"), [("timm:resnet18", "3x224x224"), ("timm:tf_efficientnet_b1", "3x240x240")]
)
def test_timm_models_know_their_size(target: str, shape: str) -> None:
    """The size of each model's own configuration."""
    pytest.importorskip("timm")
    found = memlens.predict(target, batch_size=2, gpu="4090")
    assert found.scenario["inputs"] == [shape]
    assert found.scenario["loss"] == "cross_entropy"


def test_timm_has_no_such_model() -> None:
    """The nearest names."""
    pytest.importorskip("timm")
    with pytest.raises(UsageError, match="unknown timm model 'resnet51'") as error:
        memlens.predict("timm:resnet51", gpu="4090")
    assert "resnet50" in (error.value.hint or "")


def test_torchvision_models_know_their_size() -> None:
    """VGG16 has 138,357,544 parameters of four bytes; Inception takes 299."""
    pytest.importorskip("torchvision")
    found = memlens.predict("torchvision:vgg16", batch_size=2, gpu="4090")
    assert found.scenario["inputs"] == ["3x224x224"]
    assert 0 <= found.breakdown[Category.PARAMETER] - 138_357_544 * 4 < 2 << 20
    with pytest.raises(UsageError, match="unknown torchvision model 'vgg17'"):
        memlens.predict("torchvision:vgg17", gpu="4090")
