"""From a simulated run to its prediction: the same end for models and for scripts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from memlens.allocator import AllocatorConfig
from memlens.devices import Gpu
from memlens.explanation.prediction import Prediction, build_prediction
from memlens.explanation.prediction_record import remember
from memlens.model import Trace
from memlens.scenarios.cards import cards_for, has_cudnn
from memlens.scenarios.tight_card import has_less_than, on_a_full_card


def conclude(trace: Trace, card: Gpu, config: AllocatorConfig, *, asked: bool, **facts: Any) -> Prediction:
    """The prediction from `trace`, which ran on `card`; `facts` go to `build_prediction`.

    If the user `asked` for this card, a run that would reserve more than it has is tried on a full one;
    if not, every card of the catalogue is compared.
    """
    trace.device = card.device(has_cudnn(trace))
    if asked and has_less_than(card, trace.timeline().peak_reserved_bytes):
        trace = on_a_full_card(trace, card, config) or trace
    prediction = build_prediction(trace, asked_for_a_card=asked, **facts)
    if not asked:
        high = prediction.peak.high_process_bytes
        prediction = replace(prediction, cards=cards_for(trace, card, config, high))
    return remember(prediction)
