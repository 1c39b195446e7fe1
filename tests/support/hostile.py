"""Records in which every text tries to become markup or a script."""

from __future__ import annotations

from dataclasses import replace

from memlens.allocator import replay
from memlens.explanation.prediction import Card
from memlens.explanation.prediction_record import remember
from memlens.model import Alloc, Assumption, Frame, Free, Mark, Site, Span, Trace
from memlens.model.lines import LineRow, LineTable
from memlens.units import MIB
from tests.support.predictions import prediction

HOSTILE = "</script><img src=x onerror=alert(1)>\"'`{{7*7}}{%x%}<!--]]>\u2028&lt;<b>&amp;javascript:alert(1)"


def records(sampled: Trace) -> list[Trace]:
    """An allocator's record, `sampled` and a prediction, in which every text is hostile."""
    site = Site(HOSTILE, 1, HOSTILE, HOSTILE, HOSTILE, HOSTILE, frames=(Frame(HOSTILE, 1, HOSTILE),))
    events = [Alloc(0, 4 * MIB, site=site), Free(0), Alloc(1, 90 * MIB, site=site)]
    allocated = replay(Trace("measured", events, metadata={"command": HOSTILE}), capacity_bytes=60 * MIB)
    allocated.marks = [Mark(HOSTILE, 0, 1), Mark(HOSTILE, 1, 2), Mark(HOSTILE, 2, 3)]
    allocated.assumptions = [Assumption(HOSTILE, HOSTILE, -1, 1)]
    sampled.metadata = {"command": HOSTILE, "gpu": HOSTILE, "top_lines": [[HOSTILE, 512]]}
    sampled.metadata["lines"] = [
        LineTable(HOSTILE, HOSTILE, 1, 1, 0, (LineRow(1, HOSTILE, 1, 5, 5, 5),), gpu_note=HOSTILE).to_dict()
    ]
    sampled.processes = [replace(process, name=HOSTILE) for process in sampled.processes]
    sampled.marks = [Mark(HOSTILE, 1, time_us=1)]
    sampled.spans = [Span(HOSTILE, 1, 2, 3, 4, 0, 7)]
    predicted = replace(prediction(), target=HOSTILE, cards=(Card(HOSTILE, 1, 1, 1),), memlens=HOSTILE)
    predicted = replace(predicted, device=replace(predicted.device, name=HOSTILE), torch=HOSTILE)
    predicted.scenario.update(precision=HOSTILE, optimizer=HOSTILE, inputs=[HOSTILE])
    predicted.trace.device = predicted.device
    predicted.trace.marks = [Mark(HOSTILE, 2, 1)]
    return [allocated, sampled, remember(predicted).trace]
