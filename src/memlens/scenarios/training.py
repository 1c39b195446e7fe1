"""The loop: what people write around a model, run on the simulated device.

How long variables live matters as much as the operators do. The loop here is the usual one: `outputs` and
`loss` of a step stay alive until the next step's take their names, the batch goes when the next one comes,
gradients are dropped (`zero_grad(set_to_none=True)`) before the forward that makes new ones.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from memlens.errors import MemlensError, TargetError, UsageError
from memlens.model import Assumption, Category
from memlens.scenarios import checkpointing
from memlens.scenarios.generation import generate
from memlens.scenarios.inputs import InputSpec, make_inputs
from memlens.scenarios.losses import Objective
from memlens.scenarios.scenario import Scenario
from memlens.scenarios.target import Target
from memlens.scenarios.user_frames import describe_refusal, last_line, place

LOOP = Assumption(
    "the usual loop: outputs and loss live until the next step's replace them",
    "zero_grad(set_to_none=True) before each forward; another loop may keep more or less",
)
LOOP_THAT_FILLS = Assumption(
    "the usual loop, but with zero_grad(set_to_none=False)", "gradients stay from one step to the next"
)
Progress = Callable[[str], None]


@dataclass
class Prepared:
    """A model on the simulated device, ready to run; what was learned on the way."""

    model: nn.Module
    specs: tuple[InputSpec, ...]
    dtype: torch.dtype  # of the weights
    objective: Objective
    optimizer: Optimizer | None = None


def prepare(sim: Any, target: Target, scenario: Scenario) -> Prepared:
    """Build the model on the host, as it will be trained, and move it to the device."""
    sim.mark("build", step=0)
    built = target.build()
    model = built.model.train(scenario.is_training)
    specs = scenario.inputs or built.inputs(scenario.seq_len, scenario.is_training)
    if scenario.seq_len is not None and scenario.inputs:
        raise UsageError("--seq-len and --input both say what goes in", hint="leave one of them out")
    check_call(model, specs, target.name)
    for assumption in built.assumptions if not scenario.inputs else ():
        sim.assume(assumption)
    if any(is_lazy(tensor) for tensor in (*model.parameters(), *model.buffers())):
        materialise(sim, model, specs, scenario)
    if scenario.recipe.weights is not None:
        model = model.to(scenario.recipe.weights)
    if scenario.grad_checkpointing:
        sim.assume(checkpointing.enable(model, target.name))
    model = scenario.edits.apply(sim, model)
    model = model.to(torch.device("cuda"))
    sim.label_module(model)
    dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
    objective = Objective(scenario.loss, label=lambda tensor: sim.label(tensor, Category.INPUT))
    return Prepared(model, specs, dtype, objective)


def materialise(sim: Any, model: nn.Module, specs: tuple[InputSpec, ...], scenario: Scenario) -> None:
    """Give lazy layers their shapes with a first batch on the host, as one does before training."""
    args, kwargs = make_inputs(specs, scenario.batch_size, torch.float32, torch.device("cpu"))
    with torch.no_grad():
        forward(model, args, kwargs)
    sim.assume(Assumption("lazy layers get their shapes from a batch on the host", "before training begins"))


def check_call(model: nn.Module, specs: tuple[InputSpec, ...], name: str) -> None:
    """Raise the error that names a missing or unknown input before anything runs."""
    signature = inspect.signature(model.forward)
    positional = [spec for spec in specs if spec.name is None]
    try:
        signature.bind(*positional, **{spec.name: spec for spec in specs if spec.name is not None})
    except TypeError as problem:
        given = ", ".join(str(spec) for spec in specs)
        raise UsageError(
            f"{name} cannot be called with the inputs {given}: {problem}",
            hint=f"it is called as forward{signature}; name an input with --input NAME=SHAPE",
        ) from problem


def train(sim: Any, prepared: Prepared, scenario: Scenario, progress: Progress) -> None:
    """`scenario.steps` steps of training, each with its marks."""
    model, objective = prepared.model, prepared.objective
    parameters = [p for p in model.parameters() if p.requires_grad]
    if not parameters:
        raise UsageError("the model has no parameter that requires a gradient", hint="use --mode inference")
    optimizer = make_optimizer(scenario, model)
    scaler = torch.amp.GradScaler("cuda") if scenario.recipe.scaler else None
    edits = scenario.edits
    sim.assume(LOOP if edits.set_to_none else LOOP_THAT_FILLS)
    for step in range(1, scenario.steps + 1):
        (optimizer or model).zero_grad(set_to_none=edits.set_to_none)
        for _ in range(scenario.accumulate):
            progress(f"step {step} of {scenario.steps}: forward")
            sim.mark("inputs", step=step)
            args = kwargs = None  # the loader's next batch takes the names of the last one
            args, kwargs = feed(sim, prepared, scenario)
            sim.mark("forward", step=step)
            with autocast(scenario), edits.around(sim):
                outputs = forward(model, args, kwargs)
                loss = objective(outputs, token_shape(args, kwargs))
            if edits.free_outputs:
                outputs = None
            if scenario.accumulate > 1:
                loss = loss / scenario.accumulate
            progress(f"step {step} of {scenario.steps}: backward")
            sim.mark("backward", step=step)
            backward(scaler.scale(loss) if scaler else loss)
            sim.label_gradients(parameters)
        sim.mark("optimizer", step=step)
        if optimizer is not None:
            progress(f"step {step} of {scenario.steps}: optimizer")
            advance(optimizer, scaler)
        sim.mark("end", step=0)  # what is freed between the steps belongs to neither
    for assumption in objective.assumptions:
        sim.assume(assumption)


def infer(sim: Any, prepared: Prepared, scenario: Scenario, progress: Progress) -> None:
    """`scenario.steps` batches under `inference_mode`, the outputs of one alive until the next one's come."""
    with torch.inference_mode():
        for step in range(1, scenario.steps + 1):
            progress(f"batch {step} of {scenario.steps}")
            sim.mark("inputs", step=step)
            args = kwargs = None
            args, kwargs = feed(sim, prepared, scenario)
            sim.mark("forward", step=step)
            if scenario.edits.free_outputs:
                outputs = None
            with autocast(scenario):
                if scenario.new_tokens is not None:
                    ids = kwargs["input_ids"] if "input_ids" in kwargs else args[0]
                    generate(sim, prepared.model, ids, scenario.new_tokens, scenario.cache, progress)
                    break
                outputs = forward(prepared.model, args, kwargs)  # noqa: F841 - its life is the point
        sim.mark("end", step=0)


def feed(sim: Any, prepared: Prepared, scenario: Scenario) -> tuple[list[Any], dict[str, Any]]:
    """One batch on the device."""
    args, kwargs = make_inputs(prepared.specs, scenario.batch_size, prepared.dtype, torch.device("cuda"))
    args = [scenario.edits.layout(tensor) for tensor in args]
    kwargs = {name: scenario.edits.layout(tensor) for name, tensor in kwargs.items()}
    sim.label([*args, *kwargs.values()], Category.INPUT)
    return args, kwargs


def token_shape(args: list[Any], kwargs: dict[str, Any]) -> torch.Size | None:
    """The shape of the first input where it is token numbers, batch x length."""
    first = next(iter([*args, *kwargs.values()]), None)
    if isinstance(first, torch.Tensor) and not first.is_floating_point() and first.ndim == 2:
        return first.shape
    return None


def autocast(scenario: Scenario) -> AbstractContextManager[Any]:
    dtype = scenario.recipe.autocast
    return torch.autocast("cuda", dtype=dtype) if dtype is not None else nullcontext()


def forward(model: nn.Module, args: list[Any], kwargs: dict[str, Any]) -> Any:
    """Call the model; what it refuses becomes one line that names the layer and both shapes."""
    try:
        return model(*args, **kwargs)
    except MemlensError:
        raise
    except Exception as problem:
        raise TargetError(describe_refusal(problem, model)) from problem


def backward(loss: torch.Tensor) -> None:
    try:
        loss.backward()
    except MemlensError:
        raise
    except Exception as problem:
        raise TargetError(f"backward failed: {last_line(problem)} ({place(problem)})") from problem


def make_optimizer(scenario: Scenario, model: nn.Module) -> Optimizer | None:
    if scenario.make_optimizer is None:
        return None
    return scenario.make_optimizer([p for p in model.parameters() if p.requires_grad])


def advance(optimizer: Optimizer, scaler: Any) -> None:
    """One optimizer step; one that needs a closure (LBFGS) is refused, since the closure is the loop's."""
    try:
        if scaler is not None:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
    except MemlensError:
        raise
    except Exception as problem:
        name = type(optimizer).__name__
        raise UsageError(
            f"{name} cannot take this step: {last_line(problem)} ({place(problem)})"
        ) from problem
