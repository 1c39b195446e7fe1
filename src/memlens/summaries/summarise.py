"""`summarise()`: a model's forward on a GPU that is not there, and what every part of it makes and keeps."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from memlens import __version__
from memlens.devices import find_gpu
from memlens.errors import UsageError
from memlens.model import Category
from memlens.scenarios.blame import shape_text
from memlens.scenarios.cards import REFERENCE
from memlens.scenarios.inputs import InputSpec, make_inputs, read_inputs
from memlens.scenarios.names import check_choice
from memlens.scenarios.scenario import Scenario, make_scenario
from memlens.scenarios.target import Built, find_target
from memlens.scenarios.training import autocast, check_call, forward
from memlens.simulation import simulate
from memlens.summaries.like import TOOLS, build_likes
from memlens.summaries.record import Recorder, tensors_in
from memlens.summaries.rows import build_rows, build_totals
from memlens.summaries.summary import Summary
from memlens.summaries.watch import watching

GPU = torch.device("cuda")
# training flags, and whether autograd records; "same" leaves the flags as the model has them
MODES = {"train": (True, True), "inference": (False, False), "eval": (False, True), "same": (None, True)}


def summarise(
    target: Any,
    *,
    inputs: Any = None,
    input_data: Any = None,
    kwargs: Mapping[str, Any] | None = None,
    batch_size: int = 1,
    mode: str = "train",
    precision: str | None = None,
    seq_len: int | None = None,
    model_args: Mapping[str, Any] | None = None,
    gpu: Any = None,
    like: str | None = None,
    progress: Callable[[str], None] | None = None,
) -> Summary:
    """One row for every module as it is called, and for every operator called outside torch.nn's layers.

    `target`, `inputs`, `batch_size`, `precision`, `seq_len` and `model_args` are those of `memlens.predict`.
    `input_data` instead of `inputs` is what the model is called with: tensors (of any device, they stay
    there), or tuples and dictionaries of them; `kwargs` are further arguments of `forward`. `mode`: "train"
    records for backward with dropout and batch statistics on, "eval" with them off, "same" leaves every
    module's flag as it is, "inference" keeps nothing. `like` is "torchsummary" or "torchinfo".

    The model is neither moved nor changed, nothing is computed, and its weights take no memory again.

    >>> from torch import nn
    >>> summary = summarise(nn.Sequential(nn.Linear(1024, 1024), nn.ReLU()), inputs=(1024,), batch_size=256)
    >>> summary.totals.kept_bytes, summary.totals.params
    (2097152, 1049600)
    """
    mode = check_choice("mode", mode, MODES)
    if like is not None:
        like = check_choice("tool", like, TOOLS)
    flags, records = MODES[mode]
    scenario = make_scenario(
        batch_size=batch_size, inputs=_specs(inputs, input_data), precision=precision, seq_len=seq_len,
        mode="inference" if mode == "inference" else "train",
    )  # fmt: skip
    found = find_target(target, model_args or {})
    (progress or _quiet)(f"building {found.name}")
    started = time.perf_counter()
    card = find_gpu(gpu or REFERENCE) if isinstance(gpu, str) or gpu is None else gpu
    with simulate(card, automatic_phases=False) as sim, torch.set_grad_enabled(records):
        model = _on_the_device(sim, built := found.build(), scenario, flags)
        if input_data is None:
            specs = scenario.inputs or built.inputs(seq_len, scenario.training)
            check_call(model, (*specs, *_named_specs(kwargs)), found.name)
            args, named = make_inputs(specs, batch_size, _float_dtype(model), GPU)
            named |= _moved(dict(kwargs or {}))
        else:
            args, named = _as_call(*_moved((input_data, dict(kwargs or {}))))
        batch = list(tensors_in((args, named)))
        sim.label(batch, Category.INPUT)
        sim.mark("forward", step=1)
        (progress or _quiet)("running the forward")
        recorder = Recorder(sim, model, batch)
        with watching(recorder), autocast(scenario):
            outputs = forward(model, args, named)
        with torch._C.DisableTorchFunction():
            rows = build_rows(recorder)
            likes = build_likes(recorder, batch)
            input_bytes, described = _batch_bytes(batch), tuple(_described(t) for t in batch)
        del outputs
    return Summary(
        found.name, mode, batch_size if input_data is None else None, described, rows,
        build_totals(rows, input_bytes), recorder.weight_copies_bytes, likes, like,
        tuple(sim.trace.assumptions), time.perf_counter() - started, __version__, torch.__version__,
    )  # fmt: skip


def _specs(inputs: Any, input_data: Any) -> tuple[InputSpec, ...]:
    if inputs is not None and input_data is not None:
        raise UsageError("inputs and input_data both say what goes in", hint="leave one of them out")
    return read_inputs(inputs)


def _named_specs(kwargs: Mapping[str, Any] | None) -> tuple[InputSpec, ...]:
    return tuple(InputSpec((), None, name) for name in kwargs or {})


def _on_the_device(sim: Any, built: Built, scenario: Scenario, flags: bool | None) -> nn.Module:
    """The model that is watched: in its mode and precision, on the simulated device."""
    sim.mark("build", step=0)
    model = built.model if flags is None else built.model.train(flags)
    for assumption in built.assumptions if not scenario.inputs else ():
        sim.assume(assumption)
    if scenario.recipe.weights is not None:
        model = model.to(scenario.recipe.weights)
    model = model.to(GPU)
    sim.label_module(model)
    sim.mark("inputs", step=1)
    return model


def _float_dtype(model: nn.Module) -> torch.dtype:
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)


def _moved(value: Any, memo: dict[int, Tensor] | None = None) -> Any:
    """A copy on the simulated device of every tensor in a call's arguments, the same tensor once."""
    memo = {} if memo is None else memo
    if isinstance(value, Tensor):
        if id(value) not in memo:
            memo[id(value)] = _copied(value)
        return memo[id(value)]
    if isinstance(value, Mapping):
        return {key: _moved(item, memo) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [_moved(item, memo) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    return value


def _copied(tensor: Tensor) -> Tensor:
    if tensor.device.type == "cpu":
        return tensor.detach().to(GPU).requires_grad_(tensor.requires_grad)
    return torch.zeros(tensor.shape, dtype=tensor.dtype, device=GPU, requires_grad=tensor.requires_grad)


def _as_call(data: Any, named: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """`input_data` as torchinfo takes it: one argument, a list of arguments, or arguments by name."""
    if isinstance(data, Mapping):
        return [], {**data, **named}
    return (list(data) if isinstance(data, (list, tuple)) else [data]), named


def _batch_bytes(batch: list[Tensor]) -> int:
    storages = [tensor.untyped_storage() for tensor in batch]
    return sum({storage._cdata: storage.nbytes() for storage in storages}.values())


def _described(tensor: Tensor) -> str:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return f"{dtype}:{shape_text(tensor.shape)}"


def _quiet(text: str) -> None:
    """No progress was asked for."""
