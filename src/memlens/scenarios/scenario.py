"""One frozen value that describes the run completely, except for the model itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypedDict

import torch

from memlens.errors import UsageError
from memlens.scenarios.constructor_names import check_choice
from memlens.scenarios.generation import CACHES
from memlens.scenarios.inputs import InputSpec
from memlens.scenarios.model_edits import Edits
from memlens.scenarios.optimizers import MakeOptimizer, find_optimizer

Mode = Literal["train", "inference"]


@dataclass(frozen=True, slots=True)
class Precision:
    """`weights` None leaves the model as it was built; `autocast` is the dtype of the autocast context."""

    weights: torch.dtype | None
    autocast: torch.dtype | None = None
    scaler: bool = False


PRECISIONS: dict[str, Precision] = {
    "fp32": Precision(torch.float32),
    "bf16": Precision(torch.bfloat16),
    "fp16": Precision(torch.float16),
    "amp-bf16": Precision(None, torch.bfloat16),
    "amp-fp16": Precision(None, torch.float16, scaler=True),
}
# the same in the words of torch, Lightning and Trainer
_PRECISION_WORDS = {
    "float32": "fp32", "32": "fp32", "32-true": "fp32",
    "bfloat16": "bf16", "bf16-true": "bf16", "float16": "fp16", "half": "fp16", "16-true": "fp16",
    "bf16-mixed": "amp-bf16", "16-mixed": "amp-fp16", "16": "amp-fp16",
}  # fmt: skip
_MODE_WORDS = {"training": "train", "eval": "inference", "evaluation": "inference", "infer": "inference"}
AS_BUILT = Precision(None)
AS_WRITTEN = Edits()


@dataclass(frozen=True)
class Scenario:
    """A loop to simulate. Made by `make_scenario`, which checks every value."""

    batch_size: int = 1
    mode: Mode = "train"
    inputs: tuple[InputSpec, ...] = ()
    optimizer: str = "adamw"
    optimizer_arguments: Mapping[str, Any] = field(default_factory=dict)
    make_optimizer: MakeOptimizer | None = None
    precision: str | None = None
    loss: Any = None
    accumulate: int = 1
    grad_checkpointing: bool = False
    steps: int = 2
    seq_len: int | None = None
    alloc_conf: str | None = None
    edits: Edits = AS_WRITTEN
    new_tokens: int | None = None
    cache: str = "dynamic"

    @property
    def is_training(self) -> bool:
        return self.mode == "train"

    @property
    def recipe(self) -> Precision:
        return AS_BUILT if self.precision is None else PRECISIONS[self.precision]


class ScenarioOptions(TypedDict, total=False):
    """What `predict`, `advise` and `max_batch_size` take of a loop, for calls that hand it on."""

    batch_size: int
    mode: str
    optimizer: Any
    optimizer_args: Mapping[str, Any] | None
    precision: str | None
    loss: Any
    accumulate: int
    grad_checkpointing: bool
    steps: int
    seq_len: int | None
    alloc_conf: str | None
    new_tokens: int | None
    cache: str


def make_scenario(
    *,
    batch_size: int = 1,
    mode: str = "train",
    inputs: tuple[InputSpec, ...] = (),
    optimizer: Any = "adamw",
    optimizer_args: Mapping[str, Any] | None = None,
    precision: str | None = None,
    loss: Any = None,
    accumulate: int = 1,
    grad_checkpointing: bool = False,
    steps: int = 2,
    seq_len: int | None = None,
    alloc_conf: str | None = None,
    new_tokens: int | None = None,
    cache: str = "dynamic",
) -> Scenario:
    """A checked Scenario. Raises UsageError for a value that makes no sense, with the nearest that does.

    >>> make_scenario(batch_size=32, optimizer="sgd", optimizer_args={"momentum": 0.9}).optimizer
    'sgd'
    """
    for name, value in (("batch size", batch_size), ("accumulate", accumulate), ("steps", steps)):
        _positive(name, value)
    if seq_len is not None:
        _positive("seq-len", seq_len)
    mode = check_choice("mode", _MODE_WORDS.get(mode.lower(), mode), ("train", "inference"))
    checked: Mode = "train" if mode == "train" else "inference"
    if precision is not None:
        precision = _PRECISION_WORDS.get(precision.lower(), precision)
        precision = check_choice("precision", precision, PRECISIONS)
    _check_generation(checked, new_tokens, cache)
    if checked == "inference":
        _refuse_training_options(loss, accumulate, grad_checkpointing, optimizer_args)
        optimizer = "none"
    name, make = find_optimizer(optimizer, optimizer_args or {})
    return Scenario(
        batch_size, checked, inputs, name, dict(optimizer_args or {}), make, precision, loss, accumulate,
        grad_checkpointing, steps, seq_len, alloc_conf, new_tokens=new_tokens, cache=cache,
    )  # fmt: skip


def _check_generation(mode: Mode, new_tokens: int | None, cache: str) -> None:
    if check_choice("cache", cache, CACHES) != "dynamic" and new_tokens is None:
        raise UsageError(f"cache {cache} has no meaning without new tokens", hint="--new-tokens 256")
    if new_tokens is not None:
        _positive("new-tokens", new_tokens)
        if mode == "train":
            raise UsageError(f"new-tokens {new_tokens} has no meaning in training", hint="--mode inference")


def _positive(name: str, value: Any) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UsageError(f"{name} must be a whole number of at least 1, got {value!r}")


def _refuse_training_options(loss: Any, accumulate: int, checkpointing: bool, arguments: Any) -> None:
    """An option without effect is an error: else a reader would think that it changed the figures."""
    given = {
        "loss": loss is not None,
        "accumulate": accumulate != 1,
        "grad-checkpointing": checkpointing,
        "optimizer-arg": bool(arguments),
    }
    wrong = [name for name, is_given in given.items() if is_given]
    if wrong:
        raise UsageError(f"{' and '.join(wrong)} has no meaning with mode inference", hint="use --mode train")
