"""`memlens.predict()`: the one door to scenarios."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.fx.experimental.symbolic_shapes  # with sympy 1.2 s: meta kernels load it, so before the clock

from memlens import __version__
from memlens.devices import Gpu, as_gpu, find_gpu
from memlens.errors import MemlensError, TargetError
from memlens.explanation.prediction import Prediction
from memlens.messages import ignore
from memlens.scenarios.cards import REFERENCE, SAME_KERNELS, card_assumptions
from memlens.scenarios.finish_prediction import conclude
from memlens.scenarios.inputs import read_inputs
from memlens.scenarios.scenario import Scenario, make_scenario
from memlens.scenarios.target import Target, find_target
from memlens.scenarios.training import Prepared, infer, prepare, train
from memlens.scenarios.user_frames import last_line, place
from memlens.simulation import Simulation, simulate
from memlens.units import parse_bytes

ObserveModel = Callable[[Simulation, Prepared], None]


def predict(
    target: Any,
    *,
    inputs: Any = None,
    batch_size: int = 1,
    gpu: str | Gpu | None = None,
    memory: str | int | None = None,
    mode: str = "train",
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
    model_args: Mapping[str, Any] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Prediction:
    """How much GPU memory a training (or inference) step needs, without a GPU.

    `target` is a model, a class, a function that makes one, or a text: `timm:resnet50`,
    `torchvision:vgg16`, `hf:config.json`, `net.py:make_model`, `package.module:Net`. A model that is passed
    is never moved or changed. `inputs` are shapes without the batch (`"3x224x224"`, `(3, 224, 224)`,
    `{"input_ids": "int64:1024"}`) or tensors with it. `gpu` is a card's name ("4090", "A100 40GB"),
    `memory` an amount ("24GiB"); with neither, `cards` of the result says which cards it fits.

    Raises `memlens.MemlensError` with one clear line when something in the call cannot be right.

    >>> import memlens
    >>> model = torch.nn.Linear(1024, 10)
    >>> memlens.predict(model, batch_size=64, gpu="RTX 4090").fits
    True
    """
    progress = progress or ignore
    progress("reading the target")
    scenario = make_scenario(
        batch_size=batch_size, mode=mode, inputs=read_inputs(inputs), optimizer=optimizer,
        optimizer_args=optimizer_args, precision=precision, loss=loss, accumulate=accumulate,
        grad_checkpointing=grad_checkpointing, steps=steps, seq_len=seq_len, alloc_conf=alloc_conf,
        new_tokens=new_tokens, cache=cache,
    )  # fmt: skip
    memory_bytes = parse_bytes(memory) if memory is not None else None
    card = as_gpu(gpu)
    resolved = find_target(target, model_args or {})
    asked = card is not None or memory_bytes is not None
    return simulate_scenario(resolved, scenario, card, memory_bytes, asked, progress)


def simulate_scenario(
    target: Target,
    scenario: Scenario,
    card: Gpu | None,
    memory_bytes: int | None,
    asked: bool,
    progress: Callable[[str], None],
    observe: ObserveModel | None = None,
) -> Prediction:
    """The prediction of one scenario. `observe(sim, prepared)` is called when the model is on the device."""
    progress(f"building {target.name}")
    started = time.perf_counter()
    reference = card if asked else find_gpu(REFERENCE)
    with simulate(
        reference, memory_bytes=memory_bytes, alloc_conf=scenario.alloc_conf, automatic_phases=False
    ) as sim:
        for assumption in card_assumptions(sim.gpu) if asked else (SAME_KERNELS,):
            sim.assume(assumption)
        described = _run(sim, target, scenario, progress, observe)
    elapsed = time.perf_counter() - started
    return conclude(
        sim.trace, sim.gpu, sim.allocator.config, asked=asked, target=target.name, scenario=described,
        operators=sim.operators, elapsed_seconds=elapsed, versions=(__version__, torch.__version__),
    )  # fmt: skip


def _run(
    sim: Simulation,
    target: Target,
    scenario: Scenario,
    progress: Callable[[str], None],
    observe: ObserveModel | None,
) -> dict[str, Any]:
    """Run the scenario; an unexpected exception becomes one line too, with that exception as its cause."""
    try:
        with torch.inference_mode(False), torch.enable_grad():  # whatever holds where predict() is called
            prepared = prepare(sim, target, scenario)
            if observe is not None:
                observe(sim, prepared)
            (train if scenario.is_training else infer)(sim, prepared, scenario, progress)
            return describe(scenario, prepared)
    except MemlensError:
        raise
    except Exception as problem:
        raise TargetError(
            f"{target.name} could not be simulated: {last_line(problem)} ({place(problem)})",
            hint="memlens.predict() in Python shows the whole traceback",
        ) from problem


def describe(scenario: Scenario, prepared: Prepared) -> dict[str, Any]:
    """The scenario as it was run, in words and numbers for json."""
    dtype = str(prepared.dtype).removeprefix("torch.")
    built = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}.get(dtype, dtype)
    return {
        "mode": scenario.mode,
        "batch_size": scenario.batch_size,
        "inputs": [str(spec) for spec in prepared.specs],
        "precision": scenario.precision or built,
        "optimizer": scenario.optimizer,
        "optimizer_arguments": {k: _plain(v) for k, v in scenario.optimizer_arguments.items()},
        "loss": prepared.objective.name or None,
        "accumulate": scenario.accumulate,
        "grad_checkpointing": scenario.grad_checkpointing,
        "steps": scenario.steps,
        "alloc_conf": scenario.alloc_conf,
        **({"new_tokens": scenario.new_tokens, "cache": scenario.cache} if scenario.new_tokens else {}),
    }


def _plain(value: Any) -> Any:
    return value if isinstance(value, (bool, int, float, str)) or value is None else str(value)
