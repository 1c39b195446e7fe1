"""Simulates what advice asks for, each once: a model's scenarios here, scripts in `script_evaluator`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from memlens.advice.change import Change
from memlens.advice.facts import TargetFacts
from memlens.advice.result import Refused
from memlens.allocator import AllocatorConfig, parse_config, replay
from memlens.devices import Gpu
from memlens.errors import MemlensError
from memlens.explanation.prediction import Prediction
from memlens.messages import ignore
from memlens.model import Trace
from memlens.scenarios.finish_prediction import conclude
from memlens.scenarios.predict import ObserveModel, simulate_scenario
from memlens.scenarios.scenario import Scenario
from memlens.scenarios.target import Target

S = TypeVar("S")  # what is simulated: a Scenario, or a Script


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a simulated scenario needs. `fits` is None where no card was named."""

    process_bytes: int
    high_process_bytes: int
    fits: bool | None


@dataclass(kw_only=True)
class Evaluator(ABC, Generic[S]):
    """One `scenario` on one card. Outcomes are kept by the names of the changes that led to them."""

    scenario: S
    card: Gpu | None
    memory_bytes: int | None
    progress: Callable[[str], None] = ignore
    simulated: int = 0
    first_batch: int = 1  # where the search for the largest batch begins
    refused: list[Refused] = field(default_factory=list)
    _known: dict[tuple[str, ...], Outcome | None] = field(default_factory=dict)

    @property
    def has_card(self) -> bool:
        """Whether the question is about a card, by its name or by its memory."""
        return self.card is not None or self.memory_bytes is not None

    @abstractmethod
    def predict(self, scenario: S, saying: str) -> Prediction:
        """Simulate `scenario`, and report progress as `saying`: what it is for."""

    @abstractmethod
    def changed(self, scenario: S, change: Change) -> S:
        """`scenario` with one more change."""

    @abstractmethod
    def with_batch(self, size: int) -> S:
        """The scenario with another batch."""

    def outcome(self, *changes: Change) -> Outcome | None:
        """The scenario with these changes; None where the model does not take them."""
        key = tuple(sorted(change.name + change.detail for change in changes))
        if key not in self._known:
            self._known[key] = self._try(changes)
        return self._known[key]

    def prepare(self, changes: Sequence[Change]) -> None:  # one at a time: nothing to prepare
        """Told which changes come next, each by itself: an evaluator may simulate several at once now."""

    def _try(self, changes: tuple[Change, ...]) -> Outcome | None:
        name = " + ".join(change.name for change in changes)
        scenario = self.scenario
        try:
            for change in changes:
                scenario = self.changed(scenario, change)
            return as_outcome(self.predict(scenario, name))
        except MemlensError as error:
            self.refused.append(Refused(name, error.message))
            return None

    def learn(self, change: Change, facts: TargetFacts) -> None:
        """Keep the outcome of a change that needs no run of its own."""
        outcome = self.replayed(change, facts)
        if outcome is not None:
            self._known[(change.name,)] = outcome

    def replayed(self, change: Change, facts: TargetFacts) -> Outcome | None:
        """The outcome by a replay of the run as it is; None where `change` needs a run of its own."""
        if not change.needs_replay:
            return None
        config = parse_config(change.edit_scenario(facts.scenario).alloc_conf or "")
        trace = replay(facts.base.trace, config)
        return as_outcome(concluded_again(facts.base, trace, facts.gpu, config))


@dataclass(kw_only=True)
class ModelEvaluator(Evaluator[Scenario]):
    """A model, trained by the loop that the scenario describes."""

    target: Target

    def predict(self, scenario: Scenario, saying: str, observe: ObserveModel | None = None) -> Prediction:
        self.simulated += 1

        def progress(text: str) -> None:
            self.progress(f"{saying}: {text}")

        return simulate_scenario(
            self.target, scenario, self.card, self.memory_bytes, self.has_card, progress, observe
        )

    def changed(self, scenario: Scenario, change: Change) -> Scenario:
        return change.edit_scenario(scenario)

    def with_batch(self, size: int) -> Scenario:
        return replace(self.scenario, batch_size=size)


def as_outcome(prediction: Prediction) -> Outcome:
    peak = prediction.peak
    return Outcome(peak.process_bytes, peak.high_process_bytes, prediction.fits)


def concluded_again(base: Prediction, trace: Trace, gpu: Gpu, config: AllocatorConfig) -> Prediction:
    """The prediction of the same run with its allocations placed anew: `trace`."""
    return conclude(
        trace, gpu, config, asked=base.fits is not None, target=base.target,
        scenario=base.scenario, operators=base.operators, elapsed_seconds=base.elapsed_seconds,
        versions=(base.memlens, base.torch),
    )  # fmt: skip


def with_memory(gpu: Gpu, memory_bytes: int | None) -> Gpu:
    return gpu if memory_bytes is None else replace(gpu, memory_bytes=memory_bytes)
