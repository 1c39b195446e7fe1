"""Observes a model while its scenario runs as it is, and adds what the scenario says."""

from __future__ import annotations

from typing import Any

from torch import nn

from memlens.advice.facts import Block, Head, TargetFacts
from memlens.advice.model_observation import ModelObservation, sum_under
from memlens.devices import Gpu
from memlens.explanation.held import held_by
from memlens.explanation.prediction import Prediction
from memlens.model import Category, Trace
from memlens.scenarios.scenario import Scenario
from memlens.scenarios.training import Prepared


class ModelObserver:
    """Called with the model on the device before it runs; `facts()` afterwards."""

    def __init__(self) -> None:
        self.prepared: Prepared | None = None
        self.seen: ModelObservation | None = None

    def __call__(self, sim: Any, prepared: Prepared) -> None:
        self.prepared, self.seen = prepared, ModelObservation(sim, prepared.model)
        sim.watch = self.seen.operator

    def facts(self, scenario: Scenario, base: Prediction, gpu: Gpu) -> TargetFacts:
        """What was seen, once the run is over."""
        assert self.prepared is not None
        assert self.seen is not None
        prepared, model = self.prepared, self.seen.facts()
        del model["rows"], model["dtype"]
        kept = kept_by_module(base.trace)
        blocks = tuple(Block(path, sum_under(kept, path), flops) for path, flops in model.pop("blocks"))
        return TargetFacts(
            scenario=scenario, base=base, gpu=gpu, dtype=prepared.dtype, blocks=blocks,
            kept_bytes=sum(kept.values()), fixed_batch=any(spec.batched for spec in prepared.specs),
            head=head(self.seen, prepared), in_place=tuple(model.pop("in_place")), **model,
        )  # fmt: skip


def head(seen: ModelObservation, prepared: Prepared) -> Head | None:
    """The layer that makes the scores of a large vocabulary, where its loss could take it over."""
    named: dict[str, nn.Module] = dict(seen.model.named_modules())
    loss = prepared.objective.name
    if not seen.logits_of or loss not in ("cross_entropy", "output.loss"):
        return None
    inside = loss == "output.loss"
    if inside and not hasattr(seen.model, "loss_function"):
        return None
    layer: Any = named[seen.logits_of]  # linear or like it
    return Head(seen.logits_of, layer.out_features, inside)


def kept_by_module(trace: Trace) -> dict[str, int]:
    """Bytes that forward of the last step left for its backward, by the module that made them."""
    starts = [mark.index for mark in trace.marks if mark.name == "backward"]
    if not starts:
        return {}
    held = held_by(trace.breakdown(starts[-1] - 1), lambda alloc: (alloc.category, alloc.site.module or ""))
    return {module: use.bytes for (kind, module), use in held.items() if kind is Category.ACTIVATION}
