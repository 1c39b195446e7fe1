"""`summarise()`: a model's forward on a GPU that is not there, and what every part of it makes and keeps."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from memlens import __version__
from memlens.devices import Gpu, as_gpu, find_gpu
from memlens.errors import TargetError, UsageError
from memlens.messages import ignore
from memlens.model import Assumption, Category
from memlens.scenarios.cards import REFERENCE
from memlens.scenarios.constructor_names import check_choice
from memlens.scenarios.inputs import InputSpec, UnknownInputs, make_inputs, read_inputs
from memlens.scenarios.scenario import Scenario, make_scenario
from memlens.scenarios.target import Built, Target, find_target
from memlens.scenarios.training import autocast, check_call, forward, materialise
from memlens.simulation import Simulation, simulate
from memlens.simulation.core.device_checks import is_mix
from memlens.simulation.core.tensors_in import tensors_in
from memlens.summaries.call import GPU, as_call, batch_bytes, describe, moved
from memlens.summaries.graph_held import find_held
from memlens.summaries.hooks import watching
from memlens.summaries.other_tools import TOOLS, build_likes
from memlens.summaries.recorder import Recorder
from memlens.summaries.rows import build_rows, build_totals
from memlens.summaries.summary import Summary

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
    asked = Asked(
        find_target(target, model_args or {}),
        make_scenario(
            batch_size=batch_size, inputs=_read(inputs, input_data), precision=precision, seq_len=seq_len,
            mode="inference" if mode == "inference" else "train",
        ),
        mode, check_choice("tool", like, TOOLS) if like is not None else None,
        input_data, dict(kwargs or {}), as_gpu(gpu) or find_gpu(REFERENCE),
        progress or ignore,
    )  # fmt: skip
    try:
        return _summarise(asked)
    except TargetError as problem:
        if not is_mix(problem.__cause__):
            raise
        stays = Assumption(
            "tensors that the model puts on the CPU are taken to stay on the device with the others",
            f"on a GPU it would fail as it is: {problem.__cause__}",
        )
        return _summarise(asked, stays)


@dataclass(frozen=True)
class Asked:
    """A checked call."""

    target: Target
    scenario: Scenario
    mode: str
    like: str | None
    input_data: Any
    kwargs: dict[str, Any]
    card: Gpu
    progress: Callable[[str], None]


def _summarise(asked: Asked, stays: Assumption | None = None) -> Summary:
    """Simulate the forward, watch it, and count. `stays` is the reason why nothing leaves the device."""
    started = time.perf_counter()
    flags, records = MODES[asked.mode]
    asked.progress(f"building {asked.target.name}")
    with (
        simulate(asked.card, automatic_phases=False) as sim,
        torch.inference_mode(False),
        torch.set_grad_enabled(records),
    ):
        built = asked.target.build()
        model = _on_the_device(sim, asked, built, flags)
        try:
            args, named = _feed(asked, built, model)
        except UnknownInputs as unknown:
            if asked.kwargs or asked.like:
                raise
            return _without_forward(asked, sim, model, unknown, started)
        batch = list(tensors_in((args, named)))
        sim.label(batch, Category.INPUT)
        sim.mark("forward", step=1)
        asked.progress("running the forward")
        recorder = Recorder(sim, model, batch)
        if stays is not None:
            sim.assume(stays)
        with watching(recorder, stays is not None), autocast(asked.scenario):
            returned = [forward(model, args, named)]
        find_held(recorder, returned)
        with torch._C.DisableTorchFunction():
            rows = build_rows(recorder)
            likes = build_likes(recorder, batch)
            input_bytes, described = batch_bytes(batch), tuple(describe(tensor) for tensor in batch)
    return Summary(
        asked.target.name, asked.mode, asked.scenario.batch_size if asked.input_data is None else None,
        described, rows, build_totals(rows, input_bytes), recorder.weight_copies_bytes, likes, asked.like,
        tuple(sim.trace.assumptions), time.perf_counter() - started, __version__, torch.__version__,
    )  # fmt: skip


def _without_forward(
    asked: Asked, sim: Simulation, model: nn.Module, unknown: UnknownInputs, started: float
) -> Summary:
    """Layers and parameters, which need no input: as torchinfo shows a model without one."""
    recorder = Recorder(sim, model, [])
    recorder.nothing_ran()
    rows = tuple(replace(row, watched=False) for row in build_rows(recorder))
    why = f"{unknown.message}; {unknown.hint}"
    only = Assumption("no forward ran, so these are layers and parameters only", why)
    return Summary(
        asked.target.name, asked.mode, None, (), rows, build_totals(rows, 0), like=asked.like,
        assumptions=(*sim.trace.assumptions, only), elapsed_seconds=time.perf_counter() - started,
        memlens=__version__, torch=torch.__version__,
    )  # fmt: skip


def _feed(asked: Asked, built: Built, model: nn.Module) -> tuple[list[Any], dict[str, Any]]:
    """The call of the model: its inputs on the device, from shapes or from the user's own tensors."""
    data, named = moved((asked.input_data, asked.kwargs))
    if data is not None:
        return as_call(data, named)
    specs = _specs(asked, built)
    given = tuple(InputSpec((), None, name) for name in named)
    check_call(model, (*specs, *given), asked.target.name)
    args, made = make_inputs(specs, asked.scenario.batch_size, _float_dtype(model), GPU)
    return args, {**made, **named}


def _specs(asked: Asked, built: Built) -> tuple[InputSpec, ...]:
    scenario = asked.scenario
    if scenario.seq_len is not None and scenario.inputs:
        raise UsageError("--seq-len and --input both say what goes in", hint="leave one of them out")
    return scenario.inputs or built.inputs(scenario.seq_len, scenario.is_training)


def _read(inputs: Any, input_data: Any) -> tuple[InputSpec, ...]:
    if inputs is not None and input_data is not None:
        raise UsageError("inputs and input_data both say what goes in", hint="leave one of them out")
    return read_inputs(inputs)


def _on_the_device(sim: Any, asked: Asked, built: Built, flags: bool | None) -> nn.Module:
    """The model that is watched: in its mode and precision, on the simulated device."""
    sim.mark("build", step=0)
    model = built.model if flags is None else built.model.train(flags)
    for assumption in built.assumptions if not asked.scenario.inputs else ():
        sim.assume(assumption)
    if any(is_lazy(tensor) for tensor in (*model.parameters(), *model.buffers())):
        if asked.input_data is not None:
            raise UsageError(
                f"{asked.target.name} has lazy layers, which get their shapes from a batch",
                hint="give the shapes of its inputs instead of input_data, or run it once before",
            )
        materialise(sim, model, _specs(asked, built), asked.scenario)
    if asked.scenario.recipe.weights is not None:
        model = model.to(asked.scenario.recipe.weights)
    model = model.to(GPU)
    sim.label_module(model)
    sim.mark("inputs", step=1)
    return model


def _float_dtype(model: nn.Module) -> torch.dtype:
    return next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
