"""What the model is fed: `--input` texts, shapes, tensors, or what is known of the kind of model."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from memlens.errors import UsageError
from memlens.scenarios.constructor_names import unknown
from memlens.scenarios.user_frames import shape_text

DTYPES: dict[str, torch.dtype] = {
    name: value for name, value in vars(torch).items() if isinstance(value, torch.dtype)
} | {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "fp64": torch.float64}

_SPEC = re.compile(r"(?:(?P<name>[A-Za-z_]\w*)=)?(?:(?P<dtype>[A-Za-z]\w*):)?(?P<shape>[^:=]*)\Z")


@dataclass(frozen=True, slots=True)
class InputSpec:
    """One input: `shape` is that of one sample, or of the whole batch where `batched` says so.

    `name` None is a positional argument. `dtype` None is float32, or the model's own in bf16 and fp16.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype | None = None
    name: str | None = None
    batched: bool = False

    def full_shape(self, batch_size: int) -> tuple[int, ...]:
        return self.shape if self.batched else (batch_size, *self.shape)

    def __str__(self) -> str:
        name = f"{self.name}=" if self.name else ""
        dtype = f"{str(self.dtype).removeprefix('torch.')}:" if self.dtype else ""
        return f"{name}{dtype}{shape_text(self.shape) if self.shape else ''}"


def parse_dtype(name: str) -> torch.dtype:
    """`float32`, `int64`, `bf16`: torch's names and the short ones."""
    if name.lower() not in DTYPES:
        raise unknown("dtype", name, DTYPES)
    return DTYPES[name.lower()]


def parse_input(text: str) -> InputSpec:
    """An `--input` as people type it; the batch dimension is not part of it.

    >>> parse_input("3x224x224").shape, parse_input("ids=int64:1024").name
    ((3, 224, 224), 'ids')
    >>> parse_input("labels=int64:").full_shape(8)       # one number a sample
    (8,)
    """
    match = _SPEC.match(text.strip())
    sizes = [part.strip() for part in re.split(r"[x,*]", match["shape"])] if match and match["shape"] else []
    if match is None or not all(size.isdigit() and int(size) > 0 for size in sizes) or not text.strip():
        raise UsageError(
            f"cannot read --input {text!r}",
            hint="write the shape of one sample, without the batch: 3x224x224, int64:1024 or mask=bool:1024",
        )
    dtype = parse_dtype(match["dtype"]) if match["dtype"] else None
    return InputSpec(tuple(int(size) for size in sizes), dtype, match["name"])


def read_inputs(given: Any) -> tuple[InputSpec, ...]:
    """Specs from what `predict(inputs=...)` takes: a text, a shape, a tensor, or a list or dict of these.

    >>> read_inputs((3, 224, 224)) == read_inputs("3x224x224")
    True
    >>> [str(spec) for spec in read_inputs({"ids": "int64:1024"})]
    ['ids=int64:1024']
    """
    if given is None:
        return ()
    if isinstance(given, Mapping):
        return tuple(_one(value, name) for name, value in given.items())
    if isinstance(given, Sequence) and not isinstance(given, str) and not _is_shape(given):
        return tuple(_one(value, None) for value in given)
    return (_one(given, None),)


def _is_shape(value: Any) -> bool:
    return isinstance(value, Sequence) and all(isinstance(n, int) for n in value) and len(value) > 0


def _one(value: Any, name: str | None) -> InputSpec:
    if isinstance(value, InputSpec):
        return value
    if isinstance(value, str):
        spec = parse_input(value)
        return InputSpec(spec.shape, spec.dtype, name or spec.name)
    if isinstance(value, torch.Tensor):
        return InputSpec(tuple(value.shape), value.dtype, name, batched=True)
    if _is_shape(value):
        if min(value) < 1:
            raise UsageError(f"an input of shape {tuple(value)} has a size below 1")
        return InputSpec(tuple(value), None, name)
    raise UsageError(
        f"cannot read {value!r} as an input",
        hint="pass '3x224x224', a shape such as (3, 224, 224), a tensor, or a dict of these by name",
    )


class UnknownInputs(UsageError):
    """Nothing says what goes into a model."""


def guess_inputs(model: nn.Module, name: str, seq_len: int | None = None) -> tuple[InputSpec, ...]:
    """The inputs of a user's model where they are certain; otherwise the error that says what to pass.

    Certain are `example_input_array` (as Lightning modules have), an `nn.Sequential` that starts with a
    Linear layer, and token numbers of a length that was given.
    """
    if seq_len is not None:
        if not any(isinstance(module, nn.Embedding) for module in model.modules()):
            raise UsageError(f"--seq-len {seq_len} has no meaning for {name}, which embeds no tokens")
        return (InputSpec((seq_len,), torch.int64),)
    example = getattr(model, "example_input_array", None)
    if example is not None:
        pieces = tuple(example) if isinstance(example, (tuple, list)) else example
        return tuple(
            InputSpec(spec.shape[1:], spec.dtype, spec.name) if spec.batched else spec
            for spec in read_inputs(pieces)
        )
    first: nn.Module = model
    while isinstance(first, nn.Sequential) and len(first):
        first = first[0]
    if isinstance(first, nn.Linear):
        return (InputSpec((first.in_features,)),)
    raise UnknownInputs(f"what goes into {name} is not known", hint=_input_hint(model))


def _input_hint(model: nn.Module) -> str:
    for path, module in model.named_modules():
        if isinstance(module, nn.Conv2d):
            shape = f"{module.in_channels}x224x224"
            return f"{path} takes images of {module.in_channels} channels: pass their size, --input {shape}"
        if isinstance(module, nn.Conv1d):
            return f"{path} takes {module.in_channels} channels: pass --input {module.in_channels}x1000"
        if isinstance(module, nn.Embedding):
            return f"{path} takes token numbers: pass the length of a sample, --input int64:1024"
        if isinstance(module, nn.Linear):
            return (
                f"pass the shape of one sample without the batch; {path} takes --input {module.in_features}"
            )
    return "pass the shape of one sample without the batch, such as --input 3x224x224 or --input int64:1024"


def make_inputs(
    specs: Sequence[InputSpec], batch_size: int, float_dtype: torch.dtype, device: torch.device
) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """One batch on the device: positional and keyword arguments of the model."""
    args, kwargs = [], {}
    for spec in specs:
        dtype = spec.dtype or float_dtype
        tensor = torch.zeros(spec.full_shape(batch_size), dtype=dtype, device=device)
        if spec.name is None:
            args.append(tensor)
        else:
            kwargs[spec.name] = tensor
    return args, kwargs
