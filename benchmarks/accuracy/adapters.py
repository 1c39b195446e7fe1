"""LoRA and QLoRA on a T4, with transformers, peft and bitsandbytes.

The program that was measured is public (scripts/measure.py of fitcheck) and is followed step by step: linear
layers 4-bit (nf4, one level of scales), peft's `prepare_model_for_kbit_training`, adapters in float32 of the
stated rank on the four attention projections, checkpointing without re-entry, AdamW, no mask, the same batch
each time; gradients live until the next step begins, outputs until a step's end. One step warms up, the next
is measured, and of a third the phases. Attention is eager, or the memory-efficient kernel alone with keys and
values repeated for it (that kernel takes no groups). Rows without quantisation are loaded on the host and
moved.

Its versions are known: for the rows of `final` transformers 5.0 and peft 0.19, for those of the sweep before
transformers 5.17 and peft 0.20. They differ in what is reserved: 5.0 reads ahead while it quantises
(loading.py), and peft 0.20 empties the cache after casting to float32. Reading ahead is a race between
threads: rows that differ in the attention kernel alone differ by up to 4.3 MiB before their first step. The
interval of what is reserved is that of other outcomes of the race.
"""

from __future__ import annotations

import csv
import inspect
import statistics
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

import memlens
from benchmarks.accuracy.job import MIB, Job, Predicted, Table
from benchmarks.accuracy.loading import THREADS, load

SHARES = (0.0, 0.5, 0.9)  # of the time that the embedding would take at the pace of the rest


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
    """MiB: before the first step, highest allocated and reserved, highest allocated by phase."""

    resident: float
    allocated: float
    reserved: float
    forward: float
    backward: float
    optimizer: float


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
    if quantised(row):
        quantization = transformers.BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype=torch.float16
        )
        model = replace_with_bnb_linear(
            model, modules_to_not_convert=["lm_head"], quantization_config=quantization
        )
        model.is_loaded_in_4bit = True
    return model


def quantised(row: dict[str, str]) -> bool:
    return row["quant"] == "nf4"


def final(row: dict[str, str]) -> bool:
    """Measured with transformers 5.0 and peft 0.19."""
    return row["source_file"].startswith("final")


def add_adapters(model: Any, row: dict[str, str]) -> Any:
    import peft

    if quantised(row):
        empties = "auto_clear_cache" in inspect.signature(peft.prepare_model_for_kbit_training).parameters
        options = {"auto_clear_cache": not final(row)} if empties else {}
        model = peft.prepare_model_for_kbit_training(model, **options)
    rank = int(row["lora_r"])
    names = ["q_proj", "k_proj", "v_proj", "o_proj"]
    lora = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=names, task_type="CAUSAL_LM")
    model = peft.get_peft_model(model, lora)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    model.enable_input_require_grads()
    return model.train()


@contextmanager
def attention(row: dict[str, str]) -> Iterator[None]:
    """The memory-efficient kernel alone, keys and values repeated for it; or as the model has it."""
    if row["attn"] == "eager":
        yield
        return
    given = F.scaled_dot_product_attention

    def repeated(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
        times = query.size(-3) // key.size(-3)
        if times > 1:
            key, value = (x.repeat_interleave(times, dim=-3) for x in (key, value))
            options.pop("enable_gqa", None)
        return given(query, key, value, **options)

    F.scaled_dot_product_attention = repeated
    try:
        with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
            yield
    finally:
        F.scaled_dot_product_attention = given


def peak() -> float:
    """Highest allocated MiB since the last call."""
    found = torch.cuda.max_memory_allocated() / MIB
    torch.cuda.reset_peak_memory_stats()
    return found


def predicted(row: dict[str, str], threads: int | None = None, share: float = 1.0) -> Peaks:
    """What the row's program takes; `threads` read ahead, by default those of its version."""
    warnings.filterwarnings("ignore")
    import bitsandbytes  # noqa: F401 - looks for a real GPU, so before the simulation

    if threads is None:
        threads = THREADS if final(row) else 0
    with attention(row), memlens.simulate(gpu="T4"):
        model = make_model(row)
        model = add_adapters(load(model, threads, share) if quantised(row) else model.cuda(), row)
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
        resident = torch.cuda.memory_allocated() / MIB
        ids = torch.randint(0, 1000, (int(row["batch"]), int(row["seq"])), device="cuda")

        def step() -> list[float]:
            optimizer.zero_grad()
            peak()
            out = model(input_ids=ids, labels=ids)
            phases = [peak()]
            out.loss.backward()
            phases.append(peak())
            optimizer.step()
            return [*phases, peak()]

        step()
        highest = max(step())
        reserved = torch.cuda.max_memory_reserved() / MIB
        return Peaks(resident, highest, reserved, *step())


def figures(row: dict[str, str], race: bool = True) -> dict[str, Predicted]:
    """Allocated, reserved and the whole process; `race`: reserved is the median of its outcomes."""
    import memlens.devices

    peaks = predicted(row)
    outcomes = [peaks.reserved]
    if race and quantised(row) and final(row):
        outcomes.append(predicted(row, 0).reserved)
        outcomes += [predicted(row, share=share).reserved for share in SHARES]
    reserved = statistics.median(outcomes)
    context = memlens.devices.find_gpu("T4").context.plain_bytes
    low, expected, high = (size / MIB for size in context)
    return {
        "allocated": Predicted(peaks.allocated, peaks.allocated, peaks.allocated),
        "reserved": Predicted(reserved, min(outcomes), max(outcomes)),
        "device": Predicted(reserved + expected, min(outcomes) + low, max(outcomes) + high),
    }


def jobs(truth: Path) -> list[Job]:
    found = []
    for number, row in enumerate(rows(truth), 2):
        name = row["model"].partition("/")[2]
        attention = "eager" if row["attn"] == "eager" else "efficient"
        key = f"{number}: {name} {attention} {'nf4' if quantised(row) else 'float16'} x{row['batch']}"
        measured = {
            "allocated": float(row["peak_allocated_mib"]),
            "reserved": float(row["peak_reserved_mib"]),
            "device": float(row["process_mib"]),
        }
        found.append(Job("qlora_t4", key, row["model"].partition("/")[0], row, measured))
    return found


QLORA = Table(
    "qlora_t4", "LoRA and QLoRA on a T4",
    "Models of transformers with adapters of peft, 4-bit weights of bitsandbytes (nf4) or float16 ones, "
    "1,024 tokens, checkpointing, AdamW; the second of two steps. The device's figure is what is reserved "
    "and CUDA's context. Recorded in September 2026 with torch 2.10 and 2.14. What is reserved depends on a "
    "race where weights are quantised while they are read: the interval is that of its outcomes.",
    jobs, lambda job: figures(job.row), ("transformers", "peft", "bitsandbytes"),
)  # fmt: skip
