"""Evaluates a script: changes of a scenario as changes of a script, each tried by running it again."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from memlens.advice.change import Change, Untried
from memlens.advice.evaluator import Evaluator, Outcome, as_outcome, concluded_again
from memlens.advice.facts import TargetFacts
from memlens.advice.unused_tensors import freed_early
from memlens.allocator import from_environment, parse_config, replay
from memlens.devices import find_gpu
from memlens.errors import UsageError
from memlens.explanation.prediction import Prediction
from memlens.scenarios.cards import REFERENCE
from memlens.scenarios.script.arguments import with_value
from memlens.scenarios.script.predict_script import Script, card_of, run_script

OBSERVER = "memlens.advice.script_edits:make_observer"
MOST_AT_A_TIME = 4  # each may take the memory of a script
# what is done here and not in the script's process: the batch, an addition to the allocator's settings, and
# what nothing uses again freed when it could have been
BATCH, ALLOC_CONF, FREE_UNUSED = "batch", "alloc-conf", "free-unused"


@dataclass(kw_only=True)
class ScriptEvaluator(Evaluator[Script]):
    """`scenario` is a Script. Its batch is that of a loader, or what `batch_arg` names."""

    batch: int | None = None  # rows of the model's input, as the script is
    batch_arg: str | None = None
    alloc_conf: str | None = None
    seen: dict[str, Any] = field(default_factory=dict)  # of the script as it is

    def prepare(self, changes: Sequence[Change]) -> None:
        """Scripts run in processes of their own, so as many at a time as there are processors."""
        with ThreadPoolExecutor(min(os.cpu_count() or 1, MOST_AT_A_TIME)) as pool:
            list(pool.map(self.outcome, changes))
        self.refused.sort(key=lambda item: item.name)

    def predict(self, scenario: Script, saying: str) -> Prediction:
        return self.run(scenario, saying)[0]

    def run(self, script: Script, saying: str) -> tuple[Prediction, dict[str, Any]]:
        """One run, and what was seen of it."""
        self.simulated += 1
        edits = dict(script.changes)
        frees_unused = FREE_UNUSED in edits
        edits.pop(FREE_UNUSED, None)
        conf = ",".join(filter(None, (self.alloc_conf, edits.pop(ALLOC_CONF, None)))) or self.alloc_conf
        ran = run_script(
            replace(script, changes=edits), gpu=self.card, memory=self.memory_bytes, alloc_conf=conf,
            progress=lambda text: self.progress(f"{saying}: {text}"), observer=OBSERVER,
        )  # fmt: skip
        prediction = ran.prediction
        if frees_unused:
            prediction = self.without_unused(prediction, ran.seen, conf)
        self._check_batch(script, ran.seen)
        return prediction, ran.seen

    def without_unused(self, base: Prediction, seen: dict[str, Any], conf: str | None) -> Prediction:
        """The same run, with what nothing uses again freed when it could have been."""
        at = {int(number): index for number, index in seen["stale"].items()}
        config = parse_config(conf) if conf is not None else from_environment(os.environ)
        trace = replay(freed_early(base.trace, at), config)
        gpu = card_of(self.card or (None if self.has_card else find_gpu(REFERENCE)), self.memory_bytes)
        return concluded_again(base, trace, gpu, config)

    def changed(self, scenario: Script, change: Change) -> Script:
        if isinstance(change.edit_script, Untried):
            raise UsageError(change.edit_script.why)
        edits = dict(change.edit_script)
        if BATCH in edits:
            scenario = self.with_batch(edits.pop(BATCH), scenario)
        return replace(scenario, changes={**scenario.changes, **edits})

    def replayed(self, change: Change, facts: TargetFacts) -> Outcome | None:
        if change.edit_script == {FREE_UNUSED: None}:
            return as_outcome(self.without_unused(facts.base, self.seen, self.alloc_conf))
        return super().replayed(change, facts)

    def with_batch(self, size: int, script: Script | None = None) -> Script:
        script = self.scenario if script is None else script
        if self.batch_arg is not None:
            return with_value(script, self.batch_arg, size)
        if self.batch not in self.seen["loaders"]:
            raise UsageError(
                f"no DataLoader of {script.name} has a batch size that could be changed",
                hint="--batch-arg NAME says which of its arguments or constants it is",
            )
        return replace(script, changes={**script.changes, BATCH: [self.batch, size]})

    def _check_batch(self, script: Script, seen: dict[str, Any]) -> None:
        """A batch that was asked for and did not come would make a wrong answer."""
        came = main_model(seen).get("rows")
        asked = script.changes[BATCH][1] if BATCH in script.changes else None
        if asked is not None and came != asked:
            raise UsageError(f"the model got {came} rows where a batch of {asked} was asked for")


def main_model(seen: dict[str, Any]) -> dict[str, Any]:
    """What was seen of the model with most weights; nothing where none was trained."""
    models: list[dict[str, Any]] = seen["models"]
    return max(models, key=lambda model: model["parameters"], default={})
