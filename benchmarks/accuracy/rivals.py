"""What other estimators say of the same rows, in the same run: those that can be asked without a GPU.

Each gets the model and one batch as the row's table builds them, and answers in MiB. What it cannot do is
said in words. torch-preflight and fitcheck-llm read scripts and configs of a model hub, not a model: they
have no answer to these rows.
"""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.accuracy.job import MIB, Job, Table

Rival = Callable[[Callable[[], Any], str], float]
RIVALS: dict[str, Rival] = {}
NO_ANSWER = {
    "torch-preflight": "reads training scripts and configs of a hub, not models",
    "fitcheck-llm": "reads configs of language models on a hub, not models",
}


def rival(name: str) -> Callable[[Rival], Rival]:
    def register(function: Rival) -> Rival:
        RIVALS[name] = function
        return function

    return register


def ask(table: Table, job: Job) -> dict[str, float | str]:
    """Every rival's figure in MiB, or why it has none."""
    assert table.model is not None
    build = table.model
    answers: dict[str, float | str] = {}
    for name, function in RIVALS.items():
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                answers[name] = function(lambda: build(job), table.optimizer)
        except Exception as problem:
            answers[name] = f"{type(problem).__name__}: {problem}".splitlines()[0][:120]
    return answers


def on_meta(build: Callable[[], Any]) -> Any:
    with torch.device("meta"):
        return build()


@rival("4 x parameters")
def four_times(build: Callable[[], Any], optimizer: str) -> float:
    """Weights, gradients and two moments: what people reckon by hand."""
    model, _ = on_meta(build)
    return 4 * sum(p.nbytes for p in model.parameters()) / MIB


@rival("accelerate")
def accelerate(build: Callable[[], Any], optimizer: str) -> float:
    """`accelerate estimate-memory`, "training using Adam", by the functions that it calls."""
    from accelerate.commands.estimate import estimate_training_usage
    from accelerate.utils import calculate_maximum_sizes

    model, _ = on_meta(build)
    size, _ = calculate_maximum_sizes(model)
    return max(estimate_training_usage(size, "float32").values()) / MIB


@rival("torchinfo")
def torchinfo(build: Callable[[], Any], optimizer: str) -> float:
    """Its "Estimated Total Size"."""
    import torchinfo

    model, inputs = on_meta(build)
    found = torchinfo.summary(model, input_data=inputs, verbose=0, device="meta")
    return (found.total_input + found.total_output_bytes + found.total_param_bytes) / MIB


@rival("torchsummary")
def torchsummary(build: Callable[[], Any], optimizer: str) -> float:
    """Its "Estimated Total Size (MB)", of 2^20 bytes; it runs the model on the host."""
    import torchsummary

    model, inputs = build()
    if not inputs[0].is_floating_point():
        raise ValueError("it feeds random floats")
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        torchsummary.summary(model, tuple(inputs[0].shape[1:]), inputs[0].shape[0], device="cpu")
    found = re.search(r"Estimated Total Size \(MB\): ([\d.]+)", text.getvalue())
    assert found is not None
    return float(found[1])


@rival("torch-kitsune")
def kitsune(build: Callable[[], Any], optimizer: str) -> float:
    """The sum of its parts for training; it runs the model on the host."""
    from kitsune import predict_memory

    model, inputs = build()
    found = predict_memory(model, tuple(inputs[0].shape[1:]), inputs[0].shape[0], optimizer=optimizer)
    parts = ("param", "gradient", "optimizer", "activation", "overhead")
    return sum(getattr(found, f"{part}_bytes") for part in parts) / MIB


@rival("MemTracker")
def mem_tracker(build: Callable[[], Any], optimizer: str) -> float:
    """torch.distributed._tools: the peak of two training steps on fake tensors.

    Of the host: backward on fake tensors of a GPU asks for a driver.
    """
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    with FakeTensorMode():
        model, inputs = build()
        steps: dict[str, Callable[[], torch.optim.Optimizer]] = {
            "adam": lambda: torch.optim.Adam(model.parameters(), foreach=False),
            "sgd": lambda: torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=False),
        }
        chosen = steps[optimizer]()
        tracker = MemTracker()
        tracker.track_external(model, chosen, *inputs)
        with tracker:
            for number in range(2):
                train_once(model, inputs, chosen)
                if number == 0:
                    tracker.reset_mod_stats()
        peaks = tracker.get_tracker_snapshot("peak")
    return max(parts["Total"] for parts in peaks.values()) / MIB


def train_once(model: nn.Module, inputs: Any, optimizer: torch.optim.Optimizer) -> None:
    """Forward, the sum of all outputs as a loss, backward and a step."""
    output = model(*inputs)
    output = getattr(output, "logits", output)
    parts = output if isinstance(output, tuple) else (output,)
    torch.stack([part.float().sum() for part in parts]).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
