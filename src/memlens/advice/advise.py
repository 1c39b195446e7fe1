"""`memlens.advise()` and `memlens.max_batch_size()`: the door to advice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Unpack

from memlens.advice import changes  # noqa: F401  # fills the table
from memlens.advice.batch import fewest_parts, largest
from memlens.advice.change import TABLE, Change
from memlens.advice.checkpointing_plan import find_plan
from memlens.advice.combine import combine
from memlens.advice.evaluator import Evaluator, ModelEvaluator, Outcome, with_memory
from memlens.advice.facts import TargetFacts
from memlens.advice.model_observer import ModelObserver
from memlens.advice.result import Advice, Advised
from memlens.devices import Gpu, as_gpu, custom_gpu, find_gpu
from memlens.errors import UsageError
from memlens.explanation.prediction import Prediction
from memlens.messages import ignore
from memlens.scenarios.cards import REFERENCE
from memlens.scenarios.inputs import read_inputs
from memlens.scenarios.scenario import ScenarioOptions, make_scenario
from memlens.scenarios.target import find_target
from memlens.units import parse_bytes

# what saves less than this share of the process is not worth a line
WORTH_SAYING = 0.005
# the median error of predicted reserved memory is near 3 %: the accuracy page of the documentation
DEFAULT_MARGIN = "5%"


def advise(
    target: Any,
    *,
    gpu: str | Gpu | None = None,
    memory: str | int | None = None,
    set_to_none: bool = True,
    same_result: bool = False,
    model_args: Mapping[str, Any] | None = None,
    inputs: Any = None,
    progress: Callable[[str], None] | None = None,
    **scenario: Unpack[ScenarioOptions],
) -> Advice:
    """What would make a training step fit a card, each change simulated, most useful first.

    Takes what `memlens.predict` takes. `set_to_none=False` says that the loop keeps gradients between its
    steps; `same_result` leaves out what alters the result of training (precision, LoRA, ...). Without a
    card the changes are ranked, and whether they fit is left open.

    Raises `memlens.MemlensError` as `memlens.predict` does; a change that the model does not take is listed
    in `refused`.

    >>> import torch, memlens
    >>> model = torch.nn.Sequential(*(torch.nn.Linear(4096, 4096) for _ in range(4)))
    >>> advice = memlens.advise(model, batch_size=16, memory="1.7GiB")
    >>> advice.base.fits, advice.advice[0].fits
    (False, True)
    """
    evaluator = make_evaluator(target, gpu, memory, inputs, model_args, progress, scenario)
    as_it_is = evaluator.scenario
    as_it_is = replace(as_it_is, edits=replace(as_it_is.edits, set_to_none=set_to_none))
    evaluator.scenario, observer = as_it_is, ModelObserver()
    base = evaluator.predict(as_it_is, "as it is", observer)
    facts = observer.facts(as_it_is, base, simulated_card(evaluator))
    return ranked_advice(facts, evaluator, same_result)


def ranked_advice(facts: TargetFacts, evaluator: Evaluator[Any], same_result: bool) -> Advice:
    """Every change that the facts suggest, simulated and ranked; several at once where one is not enough."""
    base = facts.base
    tried = _try_all(facts, evaluator, same_result)
    ranked = [(c, o) for c, o in tried if _is_worth_a_line(base, o)]
    advised = [_advised(change, outcome, base) for change, outcome in ranked]
    advised.sort(key=lambda item: (item.changes_result, -item.saves_bytes))
    combination = None
    if base.fits is False and not any(item.fits and not item.changes_result for item in advised):
        combination = combine(ranked, facts, evaluator, base.peak.process_bytes)
    if combination is not None and len(combination.names) == 1:
        combination = None  # a single one that is in the list already
    return Advice(
        base, tuple(advised), combination, refused=tuple(evaluator.refused), simulated=evaluator.simulated
    )


class BatchOptions(ScenarioOptions, total=False):
    """What the search for a batch size takes in addition to the loop."""

    gpu: str | Gpu | None
    memory: str | int | None
    margin: str | int | float
    inputs: Any
    model_args: Mapping[str, Any] | None
    progress: Callable[[str], None] | None


def largest_batch(
    target: Any,
    *,
    gpu: str | Gpu | None = None,
    memory: str | int | None = None,
    margin: str | int | float = DEFAULT_MARGIN,
    inputs: Any = None,
    model_args: Mapping[str, Any] | None = None,
    progress: Callable[[str], None] | None = None,
    **scenario: Unpack[ScenarioOptions],
) -> Advice:
    """The largest batch that fits with `margin` to spare, in `largest_batch` of the result.

    `margin` is an amount ("512MiB"), a share of the card ("5%"), or bytes. Both that batch and one
    sample more are simulated. Takes what `memlens.predict` takes, except `batch_size`.
    """
    if gpu is None and memory is None:
        raise UsageError("the largest batch of no card was asked for", hint="name one: --gpu 4090")
    evaluator = make_evaluator(target, gpu, memory, inputs, model_args, progress, scenario)
    if any(spec.batched for spec in evaluator.scenario.inputs):
        raise UsageError(
            "an input was given as a tensor, batch and all, so there is no batch to search for",
            hint="give the shape of one sample: inputs='3x224x224'",
        )
    return searched(evaluator, margin)


def searched(evaluator: Evaluator[Any], margin: str | int | float) -> Advice:
    """The largest batch that leaves `margin` of the card, and what is predicted with it."""
    whole = simulated_card(evaluator).memory_bytes
    margin_bytes = read_margin_bytes(margin, whole)
    evaluator.memory_bytes = whole - margin_bytes
    answer = largest(evaluator, evaluator.memory_bytes, margin_bytes)
    evaluator.memory_bytes = whole
    base = evaluator.predict(evaluator.with_batch(max(answer.batch_size, 1)), "the answer")
    return Advice(base, (), largest_batch=answer, simulated=evaluator.simulated)


def max_batch_size(target: Any, **call: Unpack[BatchOptions]) -> int:
    """The largest batch size that fits, 0 if not even 1 does: `largest_batch(...)` as a number.

    >>> import torch, memlens
    >>> memlens.max_batch_size(torch.nn.Linear(1024, 1024), memory="600MiB", margin="5%") > 1000
    True
    """
    answer = largest_batch(target, **call).largest_batch
    assert answer is not None
    return answer.batch_size


def read_margin_bytes(margin: str | int | float, memory_bytes: int) -> int:
    """Bytes of a margin given as bytes, an amount, or a share.

    >>> read_margin_bytes("5%", 1000), read_margin_bytes(0.05, 1000), read_margin_bytes("100", 1000)
    (50, 50, 100)
    """
    if isinstance(margin, float):
        share = margin
    elif isinstance(margin, str) and margin.strip().endswith("%"):
        try:
            share = float(margin.strip()[:-1]) / 100
        except ValueError:
            raise UsageError(f"cannot read the margin {margin!r}", hint="write 5% or 512MiB") from None
    else:
        size = parse_bytes(margin)
        if not 0 <= size < memory_bytes:
            raise UsageError(f"a margin of {margin} leaves nothing of the card")
        return size
    if not 0 <= share < 1:
        raise UsageError(f"a margin of {margin} leaves nothing of the card", hint="write 5% or 512MiB")
    return int(share * memory_bytes)


def make_evaluator(
    target: Any, gpu: Any, memory: Any, inputs: Any, model_args: Any, progress: Any, scenario: ScenarioOptions
) -> ModelEvaluator:
    checked = make_scenario(inputs=read_inputs(inputs), **scenario)
    card = as_gpu(gpu)
    memory_bytes = parse_bytes(memory) if memory is not None else None
    return ModelEvaluator(
        target=find_target(target, model_args or {}), scenario=checked, card=card, memory_bytes=memory_bytes,
        progress=progress or ignore,
    )  # fmt: skip


def simulated_card(evaluator: Evaluator[Any]) -> Gpu:
    if evaluator.card is not None:
        return with_memory(evaluator.card, evaluator.memory_bytes)
    return custom_gpu(evaluator.memory_bytes) if evaluator.memory_bytes is not None else find_gpu(REFERENCE)


def _try_all(
    facts: TargetFacts, evaluator: Evaluator[Any], same_result: bool
) -> list[tuple[Change, Outcome]]:
    """Every change that the table proposes, then those that are searched for."""
    tried: list[tuple[Change, Outcome]] = []
    proposed = [change for proposer in TABLE for change in proposer(facts)]
    wanted = [change for change in proposed if not (same_result and change.changes_result)]
    for change in wanted:
        evaluator.learn(change, facts)
    evaluator.prepare(wanted)
    for change in wanted:
        _add(tried, change, evaluator)
    if facts.base.fits is False:
        _add(tried, find_plan(facts, evaluator), evaluator)
    parts = fewest_parts(facts, evaluator)
    if parts is not None and not (same_result and parts.changes_result):
        _add(tried, parts, evaluator)
    return tried


def _add(tried: list[tuple[Change, Outcome]], change: Change | None, evaluator: Evaluator[Any]) -> None:
    outcome = evaluator.outcome(change) if change is not None else None
    if change is not None and outcome is not None:
        tried.append((change, outcome))


def _is_worth_a_line(base: Prediction, outcome: Outcome) -> bool:
    saved = base.peak.process_bytes - outcome.process_bytes
    return saved > WORTH_SAYING * base.peak.process_bytes or bool(base.fits is False and outcome.fits)


def _advised(change: Change, outcome: Outcome, base: Prediction) -> Advised:
    return Advised(
        change.name, change.what, change.how, base.peak.process_bytes - outcome.process_bytes,
        outcome.process_bytes, outcome.high_process_bytes, outcome.fits, change.changes_result, change.cost,
    )  # fmt: skip
