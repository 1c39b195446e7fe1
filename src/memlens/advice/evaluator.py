"""Simulates scenarios for advice: each once, with what the others have told already."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from memlens.advice.change import Change
from memlens.advice.facts import Facts
from memlens.advice.model_observer import Look
from memlens.advice.result import Refused
from memlens.allocator import AllocatorConfig, parse_config, replay
from memlens.devices import Gpu
from memlens.errors import MemlensError
from memlens.explanation.prediction import Prediction
from memlens.model import Trace
from memlens.scenarios.finish_prediction import conclude
from memlens.scenarios.predict import simulate_scenario
from memlens.scenarios.target import Target


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a simulated scenario needs. `fits` is None where no card was named."""

    process_bytes: int
    high_process_bytes: int
    fits: bool | None


@dataclass
class Bench:
    """One target on one card. Outcomes are kept by the names of the changes that led to them."""

    target: Target | None  # None where the scenario says it all
    scenario: Any  # a Scenario; of a script, a Script
    card: Gpu | None
    memory_bytes: int | None
    progress: Callable[[str], None]
    simulated: int = 0
    first_batch: int = 1  # where the search for the largest batch begins
    refused: list[Refused] = field(default_factory=list)
    _known: dict[tuple[str, ...], Outcome | None] = field(default_factory=dict)

    @property
    def asked(self) -> bool:
        return self.card is not None or self.memory_bytes is not None

    def predict(self, scenario: Any, saying: str, look: Look | None = None) -> Prediction:
        """Simulate `scenario`, and say on the way what for."""
        assert self.target is not None
        self.simulated += 1

        def progress(text: str) -> None:
            self.progress(f"{saying}: {text}")

        return simulate_scenario(
            self.target, scenario, self.card, self.memory_bytes, self.asked, progress, look
        )

    def outcome(self, *changes: Change) -> Outcome | None:
        """The scenario with these changes; None where the model does not take them."""
        key = tuple(sorted(change.name + change.detail for change in changes))
        if key not in self._known:
            scenario = self.scenario
            self._known[key] = self._try(scenario, changes)
        return self._known[key]

    def prepare(self, changes: Sequence[Change]) -> None:
        """These will be asked for, each by itself: a bench that can simulate several at once does so now."""

    def changed(self, scenario: Any, change: Change) -> Any:
        """`scenario` with one more change."""
        return change.edit_scenario(scenario)

    def with_batch(self, size: int) -> Any:
        """The scenario with another batch."""
        return replace(self.scenario, batch_size=size)

    def _try(self, scenario: Any, changes: tuple[Change, ...]) -> Outcome | None:
        name = " + ".join(change.name for change in changes)
        try:
            for change in changes:
                scenario = self.changed(scenario, change)
            return summed(self.predict(scenario, name))
        except MemlensError as error:
            self.refused.append(Refused(name, error.message))
            return None

    def learn(self, change: Change, facts: Facts) -> None:
        """The outcome of one change that the run as it is tells, without another run."""
        outcome = self.replayed(change, facts)
        if outcome is not None:
            self._known[(change.name,)] = outcome

    def replayed(self, change: Change, facts: Facts) -> Outcome | None:
        """What a replay of the run as it is gives for `change`; None where only another run could tell."""
        if not change.needs_replay:
            return None
        return replayed(facts.base, facts.gpu, change.edit_scenario(facts.scenario).alloc_conf or "")


def summed(prediction: Prediction) -> Outcome:
    peak = prediction.peak
    return Outcome(peak.process_bytes, peak.high_process_bytes, prediction.fits)


def replayed(base: Prediction, gpu: Gpu, alloc_conf: str) -> Outcome:
    """The same allocations under another setting of the allocator: what it reserves is all that changes."""
    config = parse_config(alloc_conf)
    return summed(concluded_again(base, replay(base.trace, config), gpu, config))


def concluded_again(base: Prediction, trace: Trace, gpu: Gpu, config: AllocatorConfig) -> Prediction:
    """What is said of the same run when its allocations were placed anew."""
    return conclude(
        trace, gpu, config, asked=base.fits is not None, target=base.target,
        scenario=base.scenario, operators=base.operators, elapsed_seconds=base.elapsed_seconds,
        versions=(base.memlens, base.torch),
    )  # fmt: skip


def with_memory(gpu: Gpu, memory_bytes: int | None) -> Gpu:
    return gpu if memory_bytes is None else replace(gpu, memory_bytes=memory_bytes)
