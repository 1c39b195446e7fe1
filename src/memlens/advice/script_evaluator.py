"""A script on the bench: changes of a scenario as changes of a script, each tried by running it again."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from memlens.advice.change import Change
from memlens.advice.evaluator import Bench, concluded_again
from memlens.advice.model_observer import Look
from memlens.advice.unused_tensors import freed_early
from memlens.allocator import from_environment, parse_config, replay
from memlens.devices import find_gpu
from memlens.errors import UsageError
from memlens.explanation.prediction import Prediction
from memlens.scenarios.cards import REFERENCE
from memlens.scenarios.script.arguments import with_value
from memlens.scenarios.script.predict_script import Script, card_of, run_script

ONLOOKER = "memlens.advice.script_edits:onlooker"
ALLOCATOR, STALE = (
    "expandable-segments",
    "free-outputs",
)  # these are changes of what was allocated, afterwards
# of a change of a scenario: the edits of a script that do the same, from what the change is about
MOST_AT_A_TIME = 4  # each may take the memory of a script
TOLD: dict[str, Callable[[Any], dict[str, Any]]] = {
    "amp-bf16": lambda _: {"amp": "bfloat16"},
    "amp-fp16": lambda _: {"amp": "float16"},
    "bf16-weights": lambda _: {"weights": "bfloat16"},
    "fp16-weights": lambda _: {"weights": "float16"},
    "sdpa": lambda _: {"sdpa": None},
    "in-place": lambda paths: {"in-place": list(paths)},
    "checkpointing": lambda _: {"checkpointing": None},
    "checkpointing-plan": lambda paths: {"checkpointing": paths},
    "offload": lambda _: {"offload": None},
    "channels-last": lambda _: {"channels-last": None},
    "set-to-none": lambda _: {"free-gradients": None},
    "no-cache": lambda _: {"no-cache": None},
    "fused-optimizer": lambda _: {"optimizer-arguments": {"fused": True}},
    "foreach-false": lambda _: {"optimizer-arguments": {"foreach": False}},
    "8-bit-optimizer": lambda _: {"8-bit-optimizer": None},
    "freeze-body": lambda last: {"freeze-body": last},
    "freeze-half": lambda path: {"freeze-before": path},
    "lora": lambda skip: {"lora": skip},
    ALLOCATOR: lambda _: {ALLOCATOR: None},
    STALE: lambda _: {STALE: None},
}
UNTRIED = {
    "adafactor": "the script makes its own optimizer; write it there and predict again",
    "chunked-loss": "the head and the loss meet in the script's own code",
}


@dataclass
class ScriptBench(Bench):
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

    def predict(self, scenario: Script, saying: str, look: Look | None = None) -> Prediction:
        return self.run(scenario, saying)[0]

    def run(self, script: Script, saying: str) -> tuple[Prediction, dict[str, Any]]:
        """One run, and what was seen of it."""
        self.simulated += 1
        told = dict(script.changes)
        conf = self.alloc_conf
        if ALLOCATOR in told:
            conf = ",".join(filter(None, (conf, "expandable_segments:True")))
        stale = STALE in told
        edits = {name: value for name, value in told.items() if name not in (ALLOCATOR, STALE)}
        ran = run_script(
            replace(script, changes=edits), gpu=self.card, memory=self.memory_bytes, alloc_conf=conf,
            progress=lambda text: self.progress(f"{saying}: {text}"), onlooker=ONLOOKER,
        )  # fmt: skip
        prediction = self.without_stale(ran.prediction, ran.seen, conf) if stale else ran.prediction
        self._check_batch(script, ran.seen)
        return prediction, ran.seen

    def without_stale(self, base: Prediction, seen: dict[str, Any], conf: str | None) -> Prediction:
        """The same run, with what nothing uses again freed when it could have been."""
        at = {int(number): index for number, index in seen["stale"].items()}
        config = parse_config(conf) if conf is not None else from_environment(os.environ)
        trace = replay(freed_early(base.trace, at), config)
        gpu = card_of(self.card or (None if self.asked else find_gpu(REFERENCE)), self.memory_bytes)
        return concluded_again(base, trace, gpu, config)

    def changed(self, scenario: Script, change: Change) -> Script:
        if change.name == "micro-batch":
            size, parts = change.about
            smaller = self.with_batch(size, scenario)
            return replace(smaller, changes={**smaller.changes, "accumulate": parts})
        if change.name in UNTRIED:
            raise UsageError(UNTRIED[change.name])
        return replace(scenario, changes={**scenario.changes, **TOLD[change.name](change.about)})

    def with_batch(self, size: int, script: Script | None = None) -> Script:
        script = self.scenario if script is None else script
        if self.batch_arg is not None:
            return with_value(script, self.batch_arg, size)
        if self.batch not in self.seen["loaders"]:
            raise UsageError(
                f"no DataLoader of {script.path} has a batch size that could be changed",
                hint="--batch-arg NAME says which of its arguments or constants it is",
            )
        return replace(script, changes={**script.changes, "batch": [self.batch, size]})

    def _check_batch(self, script: Script, seen: dict[str, Any]) -> None:
        """A batch that was asked for and did not come would make a wrong answer."""
        came = main_model(seen).get("rows")
        asked = script.changes["batch"][1] if "batch" in script.changes else None
        if asked is not None and came != asked:
            raise UsageError(f"the model got {came} rows where a batch of {asked} was asked for")


def main_model(seen: dict[str, Any]) -> dict[str, Any]:
    """What was seen of the model with most weights; nothing where none was trained."""
    models: list[dict[str, Any]] = seen["models"]
    return max(models, key=lambda model: model["parameters"], default={})
