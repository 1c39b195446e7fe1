"""timm's models and some known networks in training, on one A100 whose memory nvidia-smi showed."""

from __future__ import annotations

import csv
import re
import tempfile
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.accuracy.job import Job, Predicted, Table, of_prediction

CARD = "A100 40GB"
SMI_STEP_MIB = 2  # nvidia-smi's figures move in steps of this size
IMAGE = 224


def timm_rows(truth: Path) -> list[dict[str, str]]:
    with (truth / "timm_a100.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def flat_series(rows: list[dict[str, str]]) -> set[str]:
    """Models of which a larger batch was recorded to take no more memory than the next smaller one.

    A training step keeps activations in proportion to its batch: such a step did not run, so the whole series
    is left out. This looks at the recording alone, never at a prediction.
    """
    series: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for row in rows:
        series[row["model"]].append((int(row["batch_size"]), int(row["device_used_peak_mib"])))
    flat = set()
    for name, points in series.items():
        points.sort()
        if any(b[1] - a[1] <= SMI_STEP_MIB for a, b in pairwise(points)):
            flat.add(name)
    return flat


def impossible_series(rows: list[dict[str, str]]) -> set[str]:
    """Models of which less was recorded than their tensors take, as the recording's own estimate has it.

    It ran the step on torch's fake tensors, without workspaces, context or what an allocator adds: nothing
    that ran needs less, so the whole series is left out. This too never looks at a prediction.
    """
    return {
        row["model"]
        for row in rows
        if float(row["device_used_peak_mib"]) < float(row["rival_faketensor_peak_mib"])
    }


def family(model: str) -> str:
    """The first word of a model's name: the family that the figure colours."""
    return re.split(r"[_\d]", model)[0]


def timm_jobs(truth: Path) -> list[Job]:
    from timm import is_model

    rows = timm_rows(truth)
    flat, impossible = flat_series(rows), impossible_series(rows)
    jobs = []
    for row in rows:
        name, batch = row["model"], row["batch_size"]
        why = ""
        if name in flat:
            why = "flat in the recording: a larger batch took no more memory, so the step did not run"
        elif name in impossible:
            why = "less was recorded than the tensors of the step take: the step did not run"
        elif not is_model(name):
            why = "a model that this version of timm does not have"
        measured = {"device": float(row["device_used_peak_mib"])}
        jobs.append(Job("timm_a100", f"{name} x{batch}", family(name), row, measured, why))
    return jobs


def timm_prediction(job: Job) -> dict[str, Predicted]:
    """float32, SGD with momentum, the model's own image size: the recording does not say."""
    import memlens

    prediction = memlens.predict(
        f"timm:{job.row['model']}", batch_size=int(job.row["batch_size"]), gpu=CARD, optimizer="sgd",
        optimizer_args={"lr": 0.1, "momentum": 0.9},
    )  # fmt: skip
    return of_prediction(prediction)


def timm_model(job: Job) -> Any:
    """The model and one batch."""
    import timm
    import torch

    model = timm.create_model(job.row["model"])
    size = model.default_cfg["input_size"]
    return model, [torch.zeros(int(job.row["batch_size"]), *size)]


TIMM = Table(
    "timm_a100", "timm's models on an A100",
    "Training steps of timm's models by batch size on an A100 40GB; the memory of the whole card as nvidia- "
    "smi showed it. Optimizer, precision and image size are not recorded: float32, SGD with momentum and "
    "the model's own size are assumed. Nor is the version of torch: models with relative positions "
    "(vit_relpos, beit, coatnet) fit an older one, which kept no copy of a bias of attention for each "
    "sample; nor that of cuDNN, which now and then took gigabytes for a grouped or a large convolution.",
    timm_jobs, timm_prediction, ("timm",), timm_model, step_mib=SMI_STEP_MIB,
)  # fmt: skip


# name in the table -> target, and its image size
NETWORKS = {
    "vgg16": ("torchvision:vgg16", 224),
    "resnet50": ("torchvision:resnet50", 224),
    "Xception": ("timm:legacy_xception", 224),
    "mobilenetV2": ("torchvision:mobilenet_v2", 224),
    "efficientnet": ("torchvision:efficientnet_b0", 224),
    "inception": ("torchvision:inception_v3", 299),
    "BERT_base": ("hf:bert", 0),
}
TOKENS = 512


def network_jobs(truth: Path) -> list[Job]:
    with (truth / "networks_a100.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    why = {"gpt2_large": "ran under DataParallel: its batch per card is unknown"}
    return [
        Job("networks_a100", f"{row['model']} x{row['batch_size']}", row["model"], row,
            {"device": float(row["device_used_peak_mib"])}, why.get(row["model"], ""))
        for row in rows
    ]  # fmt: skip


def network_prediction(job: Job) -> dict[str, Predicted]:
    """float32 and Adam; BERT with a classifier at 512 tokens without padding."""
    import memlens

    target, size = NETWORKS[job.row["model"]]
    batch = int(job.row["batch_size"])
    if target == "hf:bert":
        with tempfile.TemporaryDirectory() as folder:
            config = Path(folder) / "config.json"
            config.write_text('{"model_type": "bert", "architectures": ["BertForSequenceClassification"]}')
            target = f"hf:{config}"
            prediction = memlens.predict(
                target, batch_size=batch, gpu=CARD, optimizer="adam", seq_len=TOKENS, loss="output.loss"
            )
    else:
        prediction = memlens.predict(
            target, batch_size=batch, gpu=CARD, optimizer="adam", inputs=f"3x{size}x{size}"
        )
    return of_prediction(prediction)


def network_model(job: Job) -> Any:
    import torch

    target, size = NETWORKS[job.row["model"]]
    batch = int(job.row["batch_size"])
    if target == "hf:bert":
        from transformers import BertConfig, BertForSequenceClassification

        return BertForSequenceClassification(BertConfig()), [torch.zeros(batch, TOKENS, dtype=torch.int64)]
    place, _, name = target.partition(":")
    if place == "timm":
        import timm

        model = timm.create_model(name)
    else:
        import torchvision

        model = getattr(torchvision.models, name)()
    return model, [torch.zeros(batch, 3, size, size)]


NETWORKS_TABLE = Table(
    "networks_a100", "Known networks on an A100",
    "Training with Adam in float32 on the same machine as timm's models; the memory of the whole card as "
    "nvidia-smi showed it once a second. Attention kernel and padding of BERT are not recorded.",
    network_jobs, network_prediction, ("torchvision", "timm", "transformers"), network_model, "adam",
    SMI_STEP_MIB,
)  # fmt: skip
