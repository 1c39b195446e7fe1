"""LoRA, LLaMA-Adapter and inference with bfloat16 and 4-bit weights on an A100 against recorded figures:
`python -m benchmarks.accuracy.litgpt`.

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
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

import memlens
import memlens.devices
from benchmarks.accuracy.gpt import GPT, Recipe, Shape
from benchmarks.accuracy.page import percent, spread
from benchmarks.accuracy.truths import folder

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


class Result(NamedTuple):
    """A row, what was predicted for it, and the signed error where it has a figure."""

    row: dict[str, str]
    predicted_gb: float
    error: float | None

    @property
    def ran_out(self) -> bool:
        return self.row["max_allocated_gb"] == "OOM"

    @property
    def too_large(self) -> bool:
        """What is allocated alone is more than the card has."""
        return self.predicted_gb * GB > memlens.devices.find_gpu("A100 40GB").memory_bytes


def results(truth: Path) -> Iterator[Result]:
    for row in rows(truth):
        mine, measured = predicted_gb(row), row["max_allocated_gb"]
        yield Result(row, mine, mine / float(measured) - 1 if measured[0].isdigit() else None)


HEAD = """
## LoRA, LLaMA-Adapter and inference on an A100

lit-gpt's programs of autumn 2023 on an A100 40GB, weights in bfloat16 or 4-bit (nf4; dq: with 8-bit scales),
the longest sample of the data set; highest allocated memory.

"""


def section(found: list[Result]) -> str:
    """The part of docs/accuracy.md."""
    errors = [result.error for result in found if result.error is not None]
    full = [result for result in found if result.ran_out]
    seen = sum(result.too_large for result in full)
    head = [
        f"**{len(errors)} rows: {spread(errors)}.** Of {len(full)} rows that ran out of memory, {seen} are "
        "predicted to need more than the card has.",
        "",
        "| program | model | weights | batch | measured GB | predicted GB | error |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    lines = [line(result) for result in found if result.error is not None or result.ran_out]
    left = [result for result in found if result.error is None and not result.ran_out]
    why = [
        f"Left out: {r.row['model']} {r.row['size']} in {weights(r.row)}, which stopped while cuBLAS was "
        f"started ({r.predicted_gb:.2f} GB predicted): there is no figure."
        for r in left
    ]
    return HEAD + "\n".join([*head, *lines, "", *why]) + "\n"


def weights(row: dict[str, str]) -> str:
    return "bfloat16" if row["quantization"] == "None" else row["quantization"].removeprefix("bnb.")


def line(result: Result) -> str:
    row = result.row
    recipe = recipe_of(row)
    program = f"adapter v{recipe.adapter}" if recipe.adapter else "LoRA" if recipe.rank else "inference"
    measured = "out of memory" if result.ran_out else row["max_allocated_gb"]
    error = "" if result.error is None else percent(result.error)
    cells = (
        program, f"{row['model']} {row['size']}", weights(row), row["micro_batch"] or "1", measured,
        f"{result.predicted_gb:.2f}", error,
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main() -> None:
    truth = folder()
    if truth is None:
        sys.exit("no recorded figures beside the checkout; name their folder in MEMLENS_SHARED")
    print(section(list(results(truth))))


if __name__ == "__main__":
    main()
