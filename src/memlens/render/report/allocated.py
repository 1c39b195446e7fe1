"""The page of a trace of allocations: predictions, torch snapshots, memray captures."""

from __future__ import annotations

from memlens.explanation.explain import Explanation
from memlens.explanation.over_time import phase_at
from memlens.explanation.prediction import Prediction, build_steps, short_name, verdict
from memlens.model import Category, OutOfMemory, Trace
from memlens.render.prediction import subtitle
from memlens.render.report import charts
from memlens.render.report.blocks import (
    Block,
    Chart,
    Fact,
    Head,
    Prose,
    Section,
    Table,
    count,
    mib,
    place,
    words,
)
from memlens.render.report.holders import TOP, holders, unused
from memlens.render.report.notebook import notebook
from memlens.units import format_bytes, format_count


def moment(seen: Explanation) -> str:
    """`the peak`, or `event 12`."""
    return "the peak" if seen.is_peak else f"event {format_count(seen.index - seen.first_event)}"


def head(seen: Explanation) -> Head:
    """The answer in one sentence, and its figures."""
    if seen.prediction is not None:
        return _prediction_head(seen.prediction)
    timeline, trace = seen.timeline, seen.trace
    device = trace.device.name if trace.device else str(trace.metadata.get("command", "the program"))
    peak = format_bytes(timeline.peak_allocated_bytes)
    failed = [event for event in trace.events if isinstance(event, OutOfMemory)]
    headline, tone = f"At its peak {device} held {peak}", ""
    if trace.device:
        headline = f"Peak on {device}: {peak} allocated"
        if timeline.reserved:
            headline += f", {format_bytes(timeline.peak_reserved_bytes)} reserved"
    if failed:
        asked = format_bytes(failed[-1].bytes)
        headline, tone = f"Ran out of memory: could not allocate {asked}. {headline}", "bad"
    return Head(KINDS[trace.origin], headline, tone, _others(trace), _facts(seen))


def _others(trace: Trace) -> list[str]:
    """The snapshot's other devices, which this page does not show."""
    own, every = trace.metadata.get("device"), trace.metadata.get("devices")
    others = [f"cuda:{each}" for each in every if each != own] if isinstance(every, list) else []
    if not others:
        return []
    return [
        f"Also recorded: {', '.join(others)}. memlens snapshot --device N -o page.html shows one of them."
    ]


KINDS = {
    "predicted": "predicted",
    "measured": "measured",
    "imported": "recorded",
}


def _facts(seen: Explanation) -> list[Fact]:
    timeline, trace = seen.timeline, seen.trace
    start = seen.first_event
    facts = [Fact("allocated at the peak", format_bytes(timeline.peak_allocated_bytes), _when(seen))]
    if timeline.reserved:
        facts.append(Fact("reserved at its peak", format_bytes(timeline.peak_reserved_bytes)))
    if timeline.allocated:
        facts.append(Fact("allocated at the end", format_bytes(timeline.allocated[-1])))
    note = (
        f"from the middle of a run: {format_bytes(timeline.allocated[start - 1])} were there already"
        if start
        else ""
    )
    facts.append(Fact("events", format_count(len(trace.events) - start), note))
    return facts


def _when(seen: Explanation) -> str:
    """`after 1.23 s, in forward, step 2`, as far as it is known."""
    if not 0 <= seen.timeline.peak_index < len(seen.trace.events):
        return ""
    index = seen.timeline.peak_index
    time_us, phase = seen.trace.events[index].time_us, phase_at(seen.trace, index)
    when = f"after {time_us / 1e6:,.3f} s" if time_us else f"at event {format_count(index)}"
    return f"{when}, in {phase}" if phase else when


def _prediction_head(prediction: Prediction) -> Head:
    peak, device = prediction.peak, prediction.device
    text = verdict(prediction)
    tone = ""
    if prediction.fits is not None:
        tone = "bad" if not prediction.fits else "warn" if prediction.may_not_fit else "good"
    span = ""
    if peak.low_process_bytes != peak.high_process_bytes:
        span = f"between {format_bytes(peak.low_process_bytes)} and {format_bytes(peak.high_process_bytes)}"
    facts = [
        Fact("process at the peak", format_bytes(peak.process_bytes), span),
        Fact("reserved", format_bytes(peak.reserved_bytes), "by PyTorch's allocator"),
        Fact("allocated", format_bytes(peak.allocated_bytes), "by tensors and libraries, at its own peak"),
    ]
    if device.memory_bytes is not None and prediction.fits is not None:
        facts.append(Fact("the card", format_bytes(device.memory_bytes), short_name(device.name)))
    where = [
        f"{peak.phase}, step {peak.step}" if peak.step else peak.phase,
        f"module {peak.module}" if peak.module else "",
        peak.operator,
        place(peak.line).text,
    ]
    sentences = ["The peak is in " + ", ".join(part for part in where if part) + "."] if any(where) else []
    return Head(
        "predicted, nothing was run",
        text[0].upper() + text[1:],
        tone,
        [f"{subtitle(prediction).plain}.", *sentences],
        facts,
    )


def sections(seen: Explanation, top: int = TOP) -> list[Section]:
    """The parts in the order they are read."""
    trace, index, when = seen.trace, seen.index, moment(seen)
    prediction = seen.prediction
    limit = room_bytes(prediction) if prediction else None
    spec, note = charts.allocations(trace, index, when.removeprefix("the "), limit)
    parts: list[Section | None] = [
        Section("course", "Memory over time", [Chart("", spec, note)]) if len(trace.events) > 1 else None,
        holders(trace, seen.held, when, _unallocated_bytes(seen), top),
        _steps(seen),
        notebook(prediction.scenario) if prediction else None,
        unused(trace, index, when),
        _failures(seen),
        _cards(prediction) if prediction else None,
    ]
    return [part for part in parts if part is not None]


def room_bytes(prediction: Prediction) -> int | None:
    """What the card leaves for the allocator; None where no card was asked for.

    The curve does not include the CUDA context: compared with the whole card, a process that does not fit
    would look as if it did.
    """
    device = prediction.device
    if prediction.fits is None or device.memory_bytes is None:
        return None
    return device.memory_bytes - device.context_bytes[1]


def _unallocated_bytes(seen: Explanation) -> dict[Category, int]:
    """What a predicted process holds in addition to its allocations: free blocks, the context."""
    timeline, device = seen.timeline, seen.trace.device
    sizes: dict[Category, int] = {}
    if timeline.reserved and 0 <= seen.index < len(timeline.reserved):
        sizes[Category.FRAGMENTATION] = timeline.reserved[seen.index] - timeline.allocated[seen.index]
    if seen.prediction is not None and device is not None:
        sizes[Category.CONTEXT] = device.context_bytes[1]
    return sizes


def _steps(seen: Explanation) -> Section | None:
    steps = build_steps(seen.trace, seen.timeline)
    blocks: list[Block] = []
    if any(step.forward_peak_bytes is not None for step in steps):
        columns = (
            "#step",
            "#at its start",
            "#forward",
            "#backward",
            "#optimizer",
            "#peak",
            "#peak reserved",
            "#at its end",
        )
        rows = []
        for step in steps:
            sizes = (
                step.start_allocated_bytes, step.forward_peak_bytes, step.backward_peak_bytes,
                step.optimizer_peak_bytes, step.peak_allocated_bytes, step.peak_reserved_bytes,
                step.end_allocated_bytes,
            )  # fmt: skip
            rows.append((count(step.step), *(words("") if size is None else mib(size) for size in sizes)))
        blocks.append(Table("Peaks of each step, MiB", columns, rows, wide=True))
    grown = seen.growth
    if grown is not None:
        held, change = grown.allocated_bytes, format_bytes(grown.bytes_per_step, sign=True)
        loop = " No step is named: that line is where the outermost loop came back to." * grown.inferred
        blocks.append(
            Prose(
                f"At {format_count(len(held))} times {grown.mark}: {format_bytes(held[1])} allocated "
                f"the second time, {format_bytes(held[-1])} the last, {change} each.{loop}"
            )
        )
        if grown.lines:
            rows = [(place(line), mib(size)) for line, size in grown.lines]
            blocks.append(Table("What grew most, MiB a step", ("line", "#MiB"), rows))
    return Section("steps", "Step by step", blocks) if blocks else None


def _failures(seen: Explanation) -> Section | None:
    """Why it ran out."""
    failures = [Prose(cause.text(), "bad") for cause in seen.causes]
    if not failures:
        failures = [
            Prose(
                f"A request of {format_bytes(event.bytes)} failed with {format_bytes(event.free_bytes)} left "
                f"on the device{f' at {event.site.where}' if event.site.where else ''}.",
                "bad",
            )
            for event in seen.trace.events
            if isinstance(event, OutOfMemory)
        ][-3:]
    return Section("failures", "Why it ran out of memory", failures) if failures else None


def _cards(prediction: Prediction) -> Section | None:
    if not prediction.cards:
        return None
    rows = [
        (
            words(short_name(card.name)),
            mib(card.memory_bytes),
            mib(card.process_bytes),
            words(card.answer),
        )
        for card in prediction.cards
    ]
    return Section("cards", "Cards", [Table("", ("card", "#memory MiB", "#needed MiB", "answer"), rows)])
