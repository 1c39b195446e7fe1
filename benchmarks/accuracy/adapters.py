"""LoRA and QLoRA on a T4 against recorded figures: `python -m benchmarks.accuracy.adapters`.

The program that was measured is not published; this is the usual one, and its figures agree. Weights are
loaded as transformers does it (one large block first, freed at once, so that the allocator has it), 4-bit
layers are bitsandbytes' own, adapters (r as stated, on the four attention projections, float32) are peft's.
"""

from __future__ import annotations

import csv
import logging
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch

import memlens
import memlens.devices
from benchmarks.accuracy.truths import folder

MIB = 2**20


class Shape(NamedTuple):
    """A model by the figures of its public config.json."""

    kind: str
    hidden: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    vocabulary: int
    tied: bool
    head: int | None = None


SHAPES = {
    "Qwen/Qwen2.5-7B-Instruct": Shape("Qwen2", 3584, 18944, 28, 28, 4, 152064, False),
    "Qwen/Qwen2.5-1.5B-Instruct": Shape("Qwen2", 1536, 8960, 28, 12, 2, 151936, True),
    "Qwen/Qwen2.5-Coder-1.5B-Instruct": Shape("Qwen2", 1536, 8960, 28, 12, 2, 151936, True),
    "mistralai/Mistral-7B-Instruct-v0.3": Shape("Mistral", 4096, 14336, 32, 32, 8, 32768, False),
    "deepseek-ai/deepseek-coder-1.3b-instruct": Shape("Llama", 2048, 5504, 24, 16, 16, 32256, False),
    "meta-llama/Llama-3.2-3B-Instruct": Shape("Llama", 3072, 8192, 28, 24, 8, 128256, True, 128),
    "meta-llama/Llama-3.2-1B-Instruct": Shape("Llama", 2048, 8192, 16, 32, 8, 128256, True, 64),
}


class Peaks(NamedTuple):
    """MiB: before the first step, highest allocated, highest reserved."""

    resident: float
    allocated: float
    reserved: float


def rows(truth: Path) -> list[dict[str, str]]:
    """Every row of qlora_t4.csv."""
    with (truth / "qlora_t4.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def make_model(row: dict[str, str]) -> Any:
    """The language model without weights, on the host, its linear layers 4-bit where the row says so."""
    import transformers
    from transformers.integrations import replace_with_bnb_linear

    shape = SHAPES[row["model"]]
    config = getattr(transformers, f"{shape.kind}Config")(
        hidden_size=shape.hidden, intermediate_size=shape.inner, num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads, num_key_value_heads=shape.kv_heads, vocab_size=shape.vocabulary,
        tie_word_embeddings=shape.tied, use_cache=False, **({"head_dim": shape.head} if shape.head else {}),
    )  # fmt: skip
    if hasattr(config, "sliding_window"):
        config.sliding_window = None
    attention = "eager" if row["attn"] == "eager" else "sdpa"
    cls = getattr(transformers, f"{shape.kind}ForCausalLM")
    model = cls._from_config(config, dtype=torch.float16, attn_implementation=attention)
    if row["quant"] == "nf4":
        quantization = transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float16
        )
        model = replace_with_bnb_linear(
            model, modules_to_not_convert=["lm_head"], quantization_config=quantization
        )
        model.is_loaded_in_4bit = True
    return model


def load(model: Any) -> Any:
    """To the device as transformers does it: room for all at once (`caching_allocator_warmup`), then each."""
    nbytes = sum(p.numel() // 2 if type(p).__name__ == "Params4bit" else p.nbytes for p in model.parameters())
    block = torch.empty(nbytes // 2, dtype=torch.float16, device="cuda")
    del block
    return model.to("cuda")


def add_adapters(model: Any, row: dict[str, str]) -> Any:
    import peft

    again = {"use_reentrant": False}
    if row["quant"] == "nf4":
        model = peft.prepare_model_for_kbit_training(model, gradient_checkpointing_kwargs=again)
    else:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=again)
        model.enable_input_require_grads()
    names = ["q_proj", "k_proj", "v_proj", "o_proj"]
    lora = peft.LoraConfig(r=int(row["lora_r"]), lora_alpha=32, target_modules=names, task_type="CAUSAL_LM")
    return peft.get_peft_model(model, lora)


def predicted(row: dict[str, str], steps: int = 2) -> Peaks:
    """Two steps: the outputs of one are gone before the next one's forward."""
    warnings.filterwarnings("ignore")
    import bitsandbytes  # noqa: F401 - looks for a real GPU, so before the simulation

    with memlens.simulate(gpu="T4") as sim:
        model = add_adapters(load(make_model(row)), row).train()
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
        ids = torch.randint(0, 1000, (int(row["batch"]), int(row["seq"])), device="cuda")
        mask = torch.ones_like(ids)
        resident = torch.cuda.memory_allocated()
        for _ in range(steps):
            out = model(input_ids=ids, attention_mask=mask, labels=ids)
            out.loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            del out
        pool = sim.allocator
        return Peaks(resident / MIB, pool.max_allocated_bytes / MIB, pool.max_reserved_bytes / MIB)


def errors(truth: Path) -> Iterator[tuple[dict[str, str], float, float, float]]:
    """Each row with the signed errors of allocated, reserved and process."""
    for row in rows(truth):
        peaks = predicted(row)
        context = memlens.devices.find_gpu("T4").context_bytes[1] / MIB
        yield (
            row,
            peaks.allocated / float(row["peak_allocated_mib"]) - 1,
            peaks.reserved / float(row["peak_reserved_mib"]) - 1,
            (peaks.reserved + context) / float(row["process_mib"]) - 1,
        )


def main() -> None:
    logging.disable(logging.WARNING)
    truth = folder()
    if truth is None:
        sys.exit("no recorded figures beside the checkout; name their folder in MEMLENS_SHARED")
    found = []
    print("| model | attention | weights | batch | allocated | reserved | process |")
    print("|---|---|---|---:|---:|---:|---:|")
    for row, *three in errors(truth):
        found.append(three)
        cells = " | ".join(f"{100 * error:+.2f} %" for error in three)
        print(f"| {row['model']} | {row['attn']} | {row['quant']} | {row['batch']} | {cells} |", flush=True)
    for name, column in zip(("allocated", "reserved", "process"), zip(*found, strict=True), strict=True):
        worst = max(column, key=abs)
        print(f"{name}: median {100 * median(map(abs, column)):.2f} %, worst {100 * worst:+.2f} %")


if __name__ == "__main__":
    main()
