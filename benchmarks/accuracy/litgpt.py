"""LoRA, LLaMA-Adapter and inference with bfloat16 and 4-bit weights on an A100.

The programs are public: lit-gpt of autumn 2023 (finetune/lora.py, adapter.py, adapter_v2.py,
generate/base.py), under Lightning's Fabric in bfloat16, 4-bit layers by bitsandbytes 0.41. What matters is
followed: the first iteration gets the longest sample, so that one decides; logits in chunks of 128 rows,
handed back in float32 (Fabric's `convert_output`); a generation of 50 tokens after the default prompt, with
key/value caches. AdamW is torch's here and keeps its moments in the parameters' dtype; bitsandbytes' keeps
them in float32, 4 bytes more for each of the few trained parameters (0.2 % of the figures at most). Sizes
are those of the models' public configs.
"""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

import memlens
from benchmarks.accuracy.gpt import GPT, Recipe, Shape
from benchmarks.accuracy.job import MIB, RAN_OUT, Job, Predicted, Table

GB = 10**9
CHUNK = 128
GENERATED = 50
PROMPT_TOKENS = 6  # "Hello, my name is", with the token that begins a text

SHAPES = {
    ("phi-1.5", "1.3 B"): Shape(2048, 24, 32, 32, 8192, 51200, 0.5, False, True, True, True, True),
    ("StableLM Alpha", "3 B"): Shape(4096, 16, 32, 32, 16384, 50688, 0.25, False, True, True),
    ("Llama 2", "7 B"): Shape(4096, 32, 32, 32, 11008, 32000, 1.0, True, False, False),
    ("Llama 2", "13 B"): Shape(5120, 40, 40, 40, 13824, 32000, 1.0, True, False, False),
    ("Llama 2", "70 B"): Shape(8192, 80, 64, 8, 28672, 32000, 1.0, True, False, False),
    ("CodeLlama", "34 B"): Shape(8192, 48, 64, 8, 22016, 32000, 1.0, True, False, False),
    ("Falcon", "40 B"): Shape(8192, 60, 128, 8, 32768, 65024, 1.0, False, True, False),
}


def chunked_loss(logits: list[Tensor], targets: Tensor) -> Tensor:
    """Cross-entropy of chunks of rows, averaged over all tokens."""
    parts = [chunk.reshape(-1, chunk.size(-1)) for chunk in logits]
    wanted = [part.reshape(-1) for part in targets.split(logits[0].size(1), dim=1)]
    losses = [
        F.cross_entropy(p, w, ignore_index=-1, reduction="none") for p, w in zip(parts, wanted, strict=True)
    ]
    return torch.cat(losses).sum() / max(1, targets.numel())


def recipe_of(row: dict[str, str]) -> Recipe:
    """What the row trains; which version of the adapter, the number of its parameters says."""
    quantization = row["quantization"]
    if "Inference" in row["task"]:
        return Recipe(0, 0, quantization)
    candidates = [Recipe(8, 0)] if "LoRA" in row["task"] else [Recipe(0, 1), Recipe(0, 2)]
    wanted = int(row["trainable_params"])
    (found,) = (recipe for recipe in candidates if trained(shape_of(row), recipe) == wanted)
    return found._replace(quantization=quantization)


def shape_of(row: dict[str, str]) -> Shape:
    return SHAPES[row["model"], row["size"]]


def trained(shape: Shape, recipe: Recipe) -> int:
    """How many parameters are trained."""
    with torch.device("meta"):
        model = GPT(shape, recipe)
    return sum(p.numel() for name, p in model.named_parameters() if recipe.trains(name))


def predicted_gb(row: dict[str, str]) -> float:
    """max_memory_allocated in GB, also beyond what the card has."""
    shape, recipe = shape_of(row), recipe_of(row)
    if "Inference" in row["task"]:
        return inferred_gb(shape, recipe)
    return trained_gb(shape, recipe, int(row["micro_batch"]), int(row["longest_sequence"]))


def inferred_gb(shape: Shape, recipe: Recipe) -> float:
    """The prompt at once; what follows takes less."""
    with memlens.simulate(gpu="A100 40GB"), torch.inference_mode():
        model = made(shape, recipe).eval()
        model.make_caches(PROMPT_TOKENS + GENERATED)
        model(torch.randint(0, 1000, (1, PROMPT_TOKENS), device="cuda"))
        return torch.cuda.max_memory_allocated() / GB


def trained_gb(shape: Shape, recipe: Recipe, batch: int, length: int) -> float:
    with memlens.simulate(gpu="A100 40GB"):
        model = made(shape, recipe)
        for name, parameter in model.named_parameters():
            if parameter.is_floating_point():
                parameter.requires_grad_(recipe.trains(name))
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=3e-4)
        ids, targets = (torch.randint(0, 1000, (batch, length), device="cuda") for _ in range(2))
        logits = [part.float() for part in model(ids, CHUNK)]
        logits[-1] = logits[-1][..., :-1, :]
        chunked_loss(logits, targets[..., 1:]).backward()
        optimizer.step()
        return torch.cuda.max_memory_allocated() / GB


def made(shape: Shape, recipe: Recipe) -> Any:
    """On the card, floats in bfloat16."""
    model = GPT(shape, recipe)
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False):
            if parameter.is_floating_point():
                getattr(module, name).data = parameter.data.to(torch.bfloat16)
    return model.to("cuda")


def rows(truth: Path) -> list[dict[str, str]]:
    """Every row of litgpt_a100.csv."""
    with (truth / "litgpt_a100.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def jobs(truth: Path) -> list[Job]:
    """One a row; of those that ran out of memory the prediction should exceed the card's."""
    import memlens.devices

    card = memlens.devices.find_gpu("A100 40GB").memory_bytes / MIB
    found = []
    for number, row in enumerate(rows(truth), 2):
        recipe, measured = recipe_of(row), row["max_allocated_gb"]
        program = f"adapter v{recipe.adapter}" if recipe.adapter else "LoRA" if recipe.rank else "inference"
        weights = "bfloat16" if row["quantization"] == "None" else row["quantization"].removeprefix("bnb.")
        key = f"{number}: {program} {row['model']} {row['size']} {weights} x{row['micro_batch'] or 1}"
        figures, why = {"allocated": float(measured) * GB / MIB} if measured[0].isdigit() else {}, ""
        if measured == "OOM":
            figures = {RAN_OUT: card}
        elif not figures:
            why = "stopped while cuBLAS was started: there is no figure"
        found.append(Job("litgpt_a100", key, program, row, figures, why))
    return found


def predict(job: Job) -> dict[str, Predicted]:
    mib = predicted_gb(job.row) * GB / MIB
    return {name: Predicted(mib, mib, mib) for name in ("allocated", RAN_OUT)}


LITGPT = Table(
    "litgpt_a100", "LoRA, LLaMA-Adapter and inference on an A100",
    "lit-gpt's programs of autumn 2023 on an A100 40GB, weights in bfloat16 or 4-bit (nf4; dq: with 8-bit "
    "scales), the longest sample of the data set; highest allocated memory, published in steps of 0.01 GB.",
    jobs, predict, step_mib=0.01 * GB / MIB,
)  # fmt: skip
