"""`memlens.advise("train.py")`: advice for a script as it is, each change tried by running it again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from memlens.advice.advise import DEFAULT_MARGIN, ranked_advice, searched, simulated_card
from memlens.advice.facts import Block, TargetFacts
from memlens.advice.model_observation import sum_under
from memlens.advice.model_observer import kept_by_module
from memlens.advice.result import Advice, Refused
from memlens.advice.script_evaluator import ScriptEvaluator, main_model
from memlens.devices import Gpu, as_gpu
from memlens.errors import UsageError
from memlens.explanation.prediction import Prediction
from memlens.messages import ignore
from memlens.scenarios.model_edits import Edits
from memlens.scenarios.optimizers import NAMES
from memlens.scenarios.scenario import Scenario
from memlens.scenarios.script.predict_script import Script
from memlens.units import parse_bytes


def advise_script(
    script: Script,
    *,
    gpu: str | Gpu | None = None,
    memory: str | int | None = None,
    alloc_conf: str | None = None,
    batch_arg: str | None = None,
    same_result: bool = False,
    progress: Callable[[str], None] = ignore,
) -> Advice:
    """What would make a training script fit a card. It is not edited: each change is made from outside.

    `batch_arg` names the argument or constant that is its batch size, where no DataLoader has it. Raises
    UsageError where the script trains no model.

    >>> from memlens.scenarios.script.predict_script import Script
    >>> advise_script(Script("train.py"), gpu="T4").advice[0].how  # doctest: +SKIP
    'del outputs  # and no list of losses: append loss.item()'
    """
    evaluator = make_evaluator(script, gpu, memory, alloc_conf, batch_arg, progress)
    base = _observe(evaluator)
    facts = facts_of(evaluator, base)
    advice = ranked_advice(facts, evaluator, same_result)
    return replace(advice, refused=(*advice.refused, *_not_tried(facts)))


def largest_batch_of_script(
    script: Script,
    *,
    gpu: str | Gpu | None = None,
    memory: str | int | None = None,
    alloc_conf: str | None = None,
    batch_arg: str | None = None,
    margin: str | int | float = DEFAULT_MARGIN,
    progress: Callable[[str], None] = ignore,
) -> Advice:
    """The largest batch with which the script fits, in `largest_batch`; it and one sample more were run."""
    if gpu is None and memory is None:
        raise UsageError("the largest batch of no card was asked for", hint="name one: --gpu 4090")
    evaluator = make_evaluator(script, gpu, memory, alloc_conf, batch_arg, progress)
    _observe(evaluator)
    return searched(evaluator, margin)


def make_evaluator(
    script: Script, gpu: Any, memory: Any, alloc_conf: str | None, batch_arg: str | None, progress: Any
) -> ScriptEvaluator:
    card = as_gpu(gpu)
    memory_bytes = parse_bytes(memory) if memory is not None else None
    return ScriptEvaluator(
        scenario=script, card=card, memory_bytes=memory_bytes, progress=progress, batch_arg=batch_arg,
        alloc_conf=alloc_conf,
    )  # fmt: skip


def _observe(evaluator: ScriptEvaluator) -> Prediction:
    """The script as it is; what the evaluator needs to know of it."""
    base, evaluator.seen = evaluator.run(evaluator.scenario, "as it is")
    model = main_model(evaluator.seen)
    if not model:
        raise UsageError(
            f"{evaluator.scenario.name} trains no model, so there is nothing to change from outside",
            hint="memlens advise FILE.py:MODEL --mode inference",
        )
    evaluator.batch, evaluator.first_batch = model["rows"], model["rows"] or 1
    return base


def facts_of(evaluator: ScriptEvaluator, base: Prediction) -> TargetFacts:
    """What was seen of the script's largest model and of its loop, as facts about a scenario."""
    seen, model = evaluator.seen, dict(main_model(evaluator.seen))
    kept = kept_by_module(base.trace)
    blocks = tuple(Block(path, sum_under(kept, path), flops) for path, flops in model.pop("blocks"))
    rows, dtype = model.pop("rows"), getattr(torch, model.pop("dtype"))
    changeable = evaluator.batch_arg is not None or rows in seen["loaders"]
    return TargetFacts(
        scenario=scenario_of(seen, rows, evaluator.alloc_conf), base=base, gpu=simulated_card(evaluator),
        dtype=dtype, blocks=blocks, kept_bytes=sum(kept.values()), fixed_batch=not changeable, head=None,
        in_place=tuple(model.pop("in_place")), **model,
    )  # fmt: skip


def scenario_of(seen: dict[str, Any], rows: int | None, alloc_conf: str | None) -> Scenario:
    """The loop that a script has, in the words of a scenario."""
    optimizer, arguments = "none", {}
    for kind in seen["optimizers"]:
        if kind["torch"] and kind["name"].lower() in NAMES:
            optimizer = kind["name"].lower()
            arguments = {key: kind[key] for key in ("fused", "foreach") if kind.get(key) is not None}
    return Scenario(
        batch_size=rows or 1,
        optimizer=optimizer,
        optimizer_arguments=arguments,
        precision="amp-bf16" if seen["autocast"] else None,
        grad_checkpointing=seen["checkpoints"],
        alloc_conf=alloc_conf,
        edits=Edits(set_to_none=not seen["held_gradients"], free_outputs=not seen["stale"]),
    )


def _not_tried(facts: TargetFacts) -> list[Refused]:
    """What would help a model of this kind, and cannot be tried from outside its script."""
    refused = []
    if facts.fixed_batch:
        refused.append(
            Refused(
                "micro-batch",
                "no DataLoader has the size of the model's batch; --batch-arg NAME says which argument or "
                "constant of the script is it",
            )
        )
    if not facts.blocks and not facts.scenario.grad_checkpointing:
        refused.append(Refused("checkpointing", "the model has no repeated blocks"))
    return refused
