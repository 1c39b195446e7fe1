"""Models of torchvision, timm and transformers: kept bytes against real CPU runs; MACs; torchinfo."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("torchvision")
pytest.importorskip("timm")
pytest.importorskip("transformers")

import timm
import torch
import torchvision
import transformers

from memlens.summaries.summarise import summarise

pytestmark = [pytest.mark.torch, pytest.mark.zoo, pytest.mark.filterwarnings("ignore")]

Case = tuple[Any, Any]  # a model and what it is called with
Storage = tuple[str, tuple[int, ...], int]  # dtype, shape, bytes

TINY = {"vocab_size": 100, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
TINY_WIDE = {**TINY, "intermediate_size": 64}


def vision(name: str, size: int = 64) -> Case:
    model = torchvision.models.get_model(name, weights=None, init_weights=False) if name == "googlenet" else (
        torchvision.models.get_model(name, weights=None)
    )  # fmt: skip
    return model, [torch.randn(2, 3, size, size)]


def from_timm(name: str, size: int = 64, **options: Any) -> Case:
    return timm.create_model(name, pretrained=False, **options), [torch.randn(2, 3, size, size)]


def language(kind: str, head: str, **settings: Any) -> Case:
    config = getattr(transformers, f"{kind}Config")(**settings)
    config._attn_implementation = "eager"
    return getattr(transformers, f"{kind}{head}")(config), {"input_ids": torch.randint(0, 100, (2, 16))}


VISION = """resnet18 resnet50 resnext50_32x4d wide_resnet50_2 vgg11 vgg11_bn squeezenet1_1 densenet121
    mobilenet_v2 mobilenet_v3_small shufflenet_v2_x0_5 efficientnet_b0 regnet_y_400mf mnasnet0_5 convnext_tiny
    googlenet swin_t""".split()
TIMM = """resnet18 mobilenetv3_small_050 efficientnet_lite0 poolformer_s12 convnextv2_atto regnetx_002
    hrnet_w18_small repvgg_a0 ghostnet_050""".split()
TIMM_OF_A_SIZE = """mixer_s32_224 resmlp_12_224 gmlp_ti16_224 coat_lite_tiny vit_tiny_patch16_224
    xcit_nano_12_p16_224""".split()
ZOO: dict[str, Callable[[], Case]] = {
    **{f"torchvision:{name}": lambda name=name: vision(name) for name in VISION},
    "torchvision:alexnet": lambda: vision("alexnet", 96),
    "torchvision:vit_b_32": lambda: vision("vit_b_32", 224),
    **{f"timm:{name}": lambda name=name: from_timm(name) for name in TIMM},
    **{f"timm:{name}": lambda name=name: from_timm(name, img_size=64) for name in TIMM_OF_A_SIZE},
    "gpt2": lambda: language(
        "GPT2", "LMHeadModel", vocab_size=100, n_embd=32, n_layer=2, n_head=4, n_positions=64,
        bos_token_id=1, eos_token_id=1,
    ),
    "llama": lambda: language("Llama", "ForCausalLM", **TINY_WIDE),
    "mistral": lambda: language("Mistral", "ForCausalLM", num_key_value_heads=2, **TINY_WIDE),
    "qwen2": lambda: language("Qwen2", "ForCausalLM", num_key_value_heads=2, **TINY_WIDE),
    "bert": lambda: language("Bert", "ForMaskedLM", **TINY_WIDE),
    "roberta": lambda: language("Roberta", "ForMaskedLM", **TINY_WIDE),
    "albert": lambda: language("Albert", "ForMaskedLM", embedding_size=16, **TINY_WIDE),
    "electra": lambda: language("Electra", "ForMaskedLM", embedding_size=16, **TINY_WIDE),
    "distilbert": lambda: language(
        "DistilBert", "ForMaskedLM", vocab_size=100, dim=32, n_layers=2, n_heads=4, hidden_dim=64
    ),
    "opt": lambda: language(
        "OPT", "ForCausalLM", ffn_dim=64, word_embed_proj_dim=32, max_position_embeddings=64, **TINY
    ),
}  # fmt: skip


# where the CPU's kernels keep something else than CUDA's, and which; all others are equal to the byte
OTHERWISE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        """torchvision:vgg11 torchvision:vgg11_bn torchvision:squeezenet1_1 torchvision:mobilenet_v2
        torchvision:googlenet torchvision:alexnet timm:ghostnet_050 gpt2 bert roberta electra distilbert
        opt""".split(),
        ("dropout",),
    ),
    "torchvision:vit_b_32": ("attention", "attention's layout"),
    "timm:vit_tiny_patch16_224": ("attention",),
    "timm:xcit_nano_12_p16_224": ("attention",),
}


def real_run(model: Any, call: Any) -> Counter[Storage]:
    """Every storage that autograd saves in a real forward on the CPU and that is no parameter."""
    weights = {p.untyped_storage()._cdata for p in model.parameters()}
    seen: dict[int, Any] = {}

    def pack(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            shape, dtype = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
            seen.setdefault(storage._cdata, (storage, (dtype, shape, storage.nbytes())))
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        outputs = model(**call) if isinstance(call, dict) else model(*call)
    del outputs
    return Counter(found for _, found in seen.values())


def as_cuda_keeps_it(cpu: Counter[Storage], ours: Counter[Storage]) -> tuple[int, list[str]]:
    """The CPU's bytes with CUDA's in place of the two things that CPU kernels keep otherwise, and which.

    Dropout's mask is of the input's dtype on the CPU and of bools in CUDA's fused kernel. Fused attention
    keeps its log-sum-exp for every query on the CPU, for queries rounded up to 32 in CUDA's memory-efficient
    kernel, which keeps two numbers for its random state too; and the CPU's output is laid out as
    MultiheadAttention wants it, while of CUDA's it makes a copy, which its projection keeps.
    """
    total = sum(size * count for (_, _, size), count in cpu.items())
    names = []
    for (dtype, shape, size), count in (ours - cpu).items():
        if dtype == "bool" and (cpu - ours)["float32", shape, 4 * size]:
            total -= 3 * size * count
            names.append("dropout")
        elif dtype == "int64" and shape == ():
            total += size * count
        elif dtype == "float32" and len(shape) == 3 and shape[2] % 32 == 0:
            shorter = [s for d, s, _ in cpu - ours if d == dtype and s[:2] == shape[:2] and s[2] < shape[2]]
            total += (size - math.prod(shorter[0]) * 4) * count
            names.append("attention")
        elif (
            dtype == "float32" and len(shape) == 2 and any(s[0] * s[2] == shape[0] for _, s, _ in four(ours))
        ):
            total += size * count
            names.append("attention's layout")
    return total, names


@pytest.mark.slow
@pytest.mark.parametrize("name", ZOO)
def test_kept_bytes_are_those_of_a_real_run(name: str) -> None:
    """Equal to the byte, except where the CPU's dropout and attention kernels keep something else."""
    torch.manual_seed(0)
    model, call = ZOO[name]()
    model.train()
    summary = summarise(model, input_data=call)
    cpu = real_run(model, call)
    ours = Counter((kept.dtype, kept.shape, kept.bytes) for row in summary.rows for kept in row.kept)
    expected, names = as_cuda_keeps_it(cpu, ours)
    assert summary.totals.kept_bytes == expected
    assert set(names) == set(OTHERWISE.get(name, ()))
    if not names:
        assert summary.totals.kept_bytes == sum(size * n for (_, _, size), n in cpu.items())


def four(found: Counter[Storage]) -> list[Storage]:
    """The storages of four dimensions, which attention's outputs are."""
    return [storage for storage in found if len(storage[1]) == 4]


COUNTED = """torchvision:resnet50 torchvision:vgg11 torchvision:densenet121 torchvision:mobilenet_v2
    torchvision:convnext_tiny torchvision:swin_t torchvision:vit_b_32 timm:vit_tiny_patch16_224
    timm:mixer_s32_224 timm:convnextv2_atto timm:coat_lite_tiny timm:regnetx_002""".split()


@pytest.mark.slow
@pytest.mark.parametrize("name", COUNTED)
def test_macs_are_half_the_flops(name: str) -> None:
    """Against torch's own flop counter, on meta tensors: on the CPU it counts no attention."""
    from torch.utils.flop_counter import FlopCounterMode

    model, call = ZOO[name]()
    summary = summarise(model, input_data=call)
    with FlopCounterMode(display=False) as counter:
        model.to("meta")(*(tensor.to("meta") for tensor in call))
    assert summary.totals.macs * 2 == counter.get_total_flops()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["torchvision:resnet18", "torchvision:vgg11", "timm:convnextv2_atto",
                                  "timm:vit_tiny_patch16_224", "torchvision:swin_t"])  # fmt: skip
def test_like_torchinfo_is_torchinfo(name: str) -> None:
    """Its four numbers to two places; the input also has the 64 bytes of a Python object there."""
    torchinfo = pytest.importorskip("torchinfo")
    model, call = ZOO[name]()
    theirs = torchinfo.summary(model, input_data=call, verbose=0, mode="train")
    like = summarise(model, input_data=call).likes["torchinfo"]
    assert like.forward_backward_mb == theirs.total_output_bytes / 1e6
    assert like.params_mb == theirs.total_param_bytes / 1e6
    assert like.input_mb == pytest.approx(theirs.total_input / 1e6, abs=1e-4)
