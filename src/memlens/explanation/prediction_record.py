"""A prediction in its own record: what the trace cannot say is kept in its metadata."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from memlens.explanation.prediction import Card, Prediction, build_prediction
from memlens.model import Trace


class CellRecord(msgspec.Struct):
    """A notebook's cell in its scenario."""

    cell: int
    allocated_bytes: int
    added_bytes: int
    peak_bytes: int
    stopped: bool
    cut_steps: int


class VariableRecord(msgspec.Struct):
    """What a variable of a notebook leads to at its end."""

    name: str
    bytes: int
    alone_bytes: int


class ScenarioRecord(msgspec.Struct):
    """What every scenario has; that of a script has no more, that of a notebook its tables."""

    mode: str
    precision: str | None
    optimizer: str
    steps: int
    cells: list[CellRecord] = []
    variables: list[VariableRecord] = []


class LoopRecord(ScenarioRecord, kw_only=True):
    """What the scenario of a model has in addition."""

    batch_size: int
    inputs: list[str]
    optimizer_arguments: dict[str, Any]
    accumulate: int
    grad_checkpointing: bool


class PredictionRecord(msgspec.Struct):
    """What is kept. A record may come from anywhere: what is not like this is no prediction."""

    target: str
    scenario: dict[str, Any]
    operators: int
    elapsed_seconds: float
    versions: tuple[str, str]
    asked_for_a_card: bool
    cards: tuple[Card, ...]


def remember(prediction: Prediction) -> Prediction:
    """Write into the prediction's trace what was asked, so that it can be rebuilt from its saved trace."""
    kept = PredictionRecord(
        prediction.target,
        prediction.scenario,
        prediction.operators,
        prediction.elapsed_seconds,
        (str(prediction.memlens), str(prediction.torch)),
        prediction.fits is not None,
        prediction.cards,
    )
    prediction.trace.metadata["prediction"] = msgspec.to_builtins(kept)
    return prediction


def recall(trace: Trace) -> Prediction | None:
    """The prediction that a trace was made for; None for any other trace."""
    try:
        kept = msgspec.convert(trace.metadata.get("prediction"), PredictionRecord)
        scenario = msgspec.convert(kept.scenario, ScenarioRecord)
        if scenario.mode != "script":
            msgspec.convert(kept.scenario, LoopRecord)
    except msgspec.ValidationError:
        return None
    values = {name: getattr(kept, name) for name in PredictionRecord.__struct_fields__ if name != "cards"}
    return replace(build_prediction(trace, **values), cards=kept.cards)
