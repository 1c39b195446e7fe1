"""Options that several commands share: one spelling, one text, one meaning."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from memlens.errors import UsageError
from memlens.units import MIB, parse_bytes

F = TypeVar("F", bound=Callable[..., Any])


def with_unit(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """An option's callback: refuses amounts that lack their unit. 24 without a unit never means 24 bytes."""
    if value is not None and (size := parse_bytes(value)) < MIB:
        name = param.opts[0]
        raise UsageError(
            f"{name} {value} is {size} bytes", hint=f"give a unit: {name} {value.rstrip('bB ')}GiB"
        )
    return value


_SHARED: dict[str, dict[str, Any]] = {
    "--memory": {
        "callback": with_unit,
        "metavar": "SIZE",
        "help": "The card's memory, 24GiB or 24GB, instead of its name.",
    },
    "--batch-size": {"default": 1, "show_default": True, "help": "Samples in a batch."},
    "--input": {
        "multiple": True,
        "metavar": "[NAME=][DTYPE:]SHAPE",
        "help": "Shape of one sample: 3x224x224, int64:1024, mask=bool:1024. Repeatable.",
    },
    "--seq-len": {"type": int, "help": "Length of a sample of a language model (hf:)."},
    "--mode": {"default": "train", "show_default": True, "help": "train or inference."},
    "--optimizer": {"default": "adamw", "show_default": True, "help": "Any of torch.optim, or none."},
    "--optimizer-arg": {
        "multiple": True,
        "metavar": "NAME=VALUE",
        "help": "lr=0.1, foreach=False. Repeatable.",
    },
    "--precision": {"help": "fp32, bf16, fp16, amp-bf16 or amp-fp16; as the model is built otherwise."},
    "--loss": {"help": "cross_entropy, mse, bce, sum, mean, output.loss or FILE.py:FUNCTION."},
    "--accumulate": {
        "default": 1,
        "show_default": True,
        "help": "Batches whose gradients are summed in a step.",
    },
    "--alloc-conf": {"metavar": "CONF", "help": "As in PYTORCH_CUDA_ALLOC_CONF."},
    "--model-arg": {
        "multiple": True,
        "metavar": "NAME=VALUE",
        "help": "Argument of the factory. Repeatable.",
    },
    "--max-seconds": {
        "default": 300.0,
        "show_default": True,
        "help": "Of a script: stop with what was learned by then.",
    },
    "--cells": {
        "default": "",
        "metavar": "1-3,7",
        "help": "Of a notebook: run only these cells.",
    },
    "--synthetic": {"is_flag": True, "help": "Of a script: feed made-up data where its own is missing."},
    "--host-memory": {
        "callback": with_unit,
        "metavar": "SIZE",
        "help": "Of a script: host memory it may take.",
    },
    "--force": {"is_flag": True, "help": "Overwrite the output file."},
}
# what only a script has, and what says the same of a script and of a model
SCRIPT_OPTIONS = {
    "cells",
    "max_seconds",
    "synthetic",
    "host_memory",
    "allow_writes",
    "show_output",
    "batch_arg",
}
COMMON_OPTIONS = {
    "gpu", "memory", "steps", "alloc_conf", "largest_batch", "margin", "same_result"
}  # fmt: skip
_PARAMETERS = {"--input": "inputs"}  # where the Python name is another


def refuse(wrong: set[str], target: str, hint: str) -> None:
    """An option without effect is an error."""
    if wrong:
        names = " and ".join(
            "--" + name.rstrip("s" if name == "inputs" else "").replace("_", "-") for name in sorted(wrong)
        )
        raise UsageError(f"{names} has no meaning for {target}", hint=hint)


def shared(*names: str) -> Callable[[F], F]:
    """Give a command these options, in this order.

    >>> @click.command()
    ... @shared("--batch-size", "--force")
    ... def command(batch_size, force): ...
    >>> [parameter.name for parameter in command.params]
    ['batch_size', 'force']
    """

    def add(function: F) -> F:
        for name in reversed(names):
            words = (name, _PARAMETERS[name]) if name in _PARAMETERS else (name,)
            function = click.option(*words, **_SHARED[name])(function)
        return function

    return add
