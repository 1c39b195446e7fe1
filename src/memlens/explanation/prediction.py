"""The result of predicting: every figure is computed from the trace, by plain functions.

The process holds what the allocator reserved plus the context. It is highest where reserved memory is; among
those moments (reserved seldom falls) the one with most allocated is shown, since its tensors are the reason.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

from memlens.answers import Answer
from memlens.explanation.step_growth import StepGrowth, step_growth
from memlens.explanation.top_holders import HeldBy, Holder, build_holders, notes, top_holders
from memlens.model import Alloc, Assumption, Breakdown, Category, Device, Site, Timeline, Trace
from memlens.units import format_bytes

SCHEMA = "memlens.prediction/1"
PHASES = ("forward", "backward", "optimizer")

# the contract has no "unknown": what a simulation could not name was short-lived
_KEYS = tuple(c for c in Category if c is not Category.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Peak:
    """Where memory is highest. `line` is `file.py:12` and empty where no line of the user's is known.

    `low_` and `high_` are how far each figure may be off, by what was assumed.
    """

    allocated_bytes: int
    low_allocated_bytes: int
    high_allocated_bytes: int
    reserved_bytes: int
    low_reserved_bytes: int
    high_reserved_bytes: int
    process_bytes: int
    low_process_bytes: int
    high_process_bytes: int
    phase: str
    step: int
    module: str | None
    operator: str
    line: str


@dataclass(frozen=True, slots=True)
class Step:
    """One step. A phase that a step does not have (backward, in inference) is None."""

    step: int
    start_allocated_bytes: int
    forward_peak_bytes: int | None
    backward_peak_bytes: int | None
    optimizer_peak_bytes: int | None
    peak_allocated_bytes: int
    peak_reserved_bytes: int
    end_allocated_bytes: int


@dataclass(frozen=True, slots=True)
class Card:
    """A card of the catalogue and what this scenario needs on it."""

    name: str
    memory_bytes: int
    process_bytes: int
    high_process_bytes: int

    @property
    def fits(self) -> bool:
        return self.process_bytes <= self.memory_bytes

    @property
    def answer(self) -> str:
        """`fits`, `may not fit` or `does not fit`."""
        return fit_answer(self.fits, self.high_process_bytes, self.memory_bytes)


def fit_answer(fits: bool, high_process_bytes: int, memory_bytes: int) -> str:
    """Whether a process fits, in words. `may not fit`: not if all that was assumed is at its worst.

    >>> fit_answer(True, high_process_bytes=9, memory_bytes=8)
    'may not fit'
    """
    if not fits:
        return "does not fit"
    return "may not fit" if high_process_bytes > memory_bytes else "fits"


@dataclass(frozen=True, repr=False)
class Prediction(Answer):
    """What a scenario needs, where and why. `trace` has every event; `to_dict()` is the JSON contract.

    `device` is the card that was simulated. `fits` and `headroom_bytes` are None where no card was asked
    for; `cards` then holds the catalogue, each card with what is needed on it.
    """

    target: str
    scenario: dict[str, Any]
    device: Device
    fits: bool | None
    headroom_bytes: int | None
    peak: Peak
    breakdown: dict[Category, int]
    steps: tuple[Step, ...]
    top_modules: tuple[HeldBy, ...]
    top_holders: tuple[Holder, ...]
    assumptions: tuple[Assumption, ...]
    operators: int
    allocations: int
    elapsed_seconds: float
    memlens: str
    torch: str
    cards: tuple[Card, ...] = ()
    growth: StepGrowth | None = None
    notes: tuple[str, ...] = ()
    trace: Trace = field(repr=False, default_factory=lambda: Trace("predicted"))

    @property
    def may_not_fit(self) -> bool:
        """It fits as expected, but not if what was assumed turns out at its worst."""
        return bool(self.fits) and self.peak.high_process_bytes > (self.device.memory_bytes or 0)

    def to_dict(self) -> dict[str, Any]:
        """The contract `memlens.prediction/1`, ready for json."""
        device = self.device
        contract: dict[str, Any] = {
            "schema": SCHEMA,
            "target": self.target,
            "scenario": self.scenario,
            "device": {
                "name": device.name,
                "memory_bytes": device.memory_bytes,
                "compute_capability": list(device.compute_capability) if device.compute_capability else None,
            },
            "fits": self.fits,
            "headroom_bytes": self.headroom_bytes,
            "peak": to_dict(self.peak),
            "breakdown_at_peak": {str(key): size for key, size in self.breakdown.items()},
            "steps": [to_dict(step) for step in self.steps],
            "top_modules": [to_dict(holder) for holder in self.top_modules],
            "assumptions": [assumption.to_dict() for assumption in self.assumptions],
            "operators": self.operators,
            "allocations": self.allocations,
            "elapsed_seconds": self.elapsed_seconds,
            "memlens": self.memlens,
            "torch": self.torch,
            "top_holders": [to_dict(holder) for holder in self.top_holders],
            "growth": None if self.growth is None else to_dict(self.growth),
            "notes": list(self.notes),
        }
        if self.fits is None:
            contract["cards"] = [{**to_dict(card), "fits": card.fits} for card in self.cards]
        return contract

    def headline(self) -> str:
        """The verdict: `resnet50: fits the Tesla T4: needs 5.10 GiB of 14.56 GiB, 9.46 GiB to spare`."""
        return f"{self.target}: {verdict(self)}"

    def to_rows(self) -> list[dict[str, Any]]:
        """One row: what was asked, the figures in bytes, and what holds memory at the peak."""
        asked = {name: value for name, value in self.scenario.items() if isinstance(value, (str, int, bool))}
        figures = {"fits": self.fits, "headroom_bytes": self.headroom_bytes, **to_dict(self.peak)}
        held = {f"{key.value}_bytes": size for key, size in self.breakdown.items()}
        return [{"target": self.target, "gpu": self.device.name, **asked, **figures, **held}]


def to_dict(value: Any) -> dict[str, Any]:
    return {name: getattr(value, name) for name in value.__dataclass_fields__}


def verdict(prediction: Prediction) -> str:
    """The answer in one line, and what would make it untrue later."""
    answer = fit_sentence(prediction)
    return f"{answer}; {prediction.growth.text()}" if prediction.growth is not None else answer


def fit_sentence(prediction: Prediction) -> str:
    """Whether it fits, with the figures."""
    peak, device = prediction.peak, prediction.device
    needs = format_bytes(peak.process_bytes)
    if prediction.fits is None or device.memory_bytes is None or prediction.headroom_bytes is None:
        fitting = [card for card in prediction.cards if card.fits]
        unsure = sum(card.high_process_bytes > card.memory_bytes for card in fitting)
        more = f", may not fit {unsure}" if unsure else ""
        return f"needs {needs}; fits {len(fitting) - unsure} of the {len(prediction.cards)} cards known{more}"
    article = "" if device.name.startswith("a ") else "the "  # "a GPU with 24.00 GiB" has its own
    card, memory = article + short_name(device.name), format_bytes(device.memory_bytes)
    if not prediction.fits:
        short = format_bytes(-prediction.headroom_bytes)
        return f"does not fit {card}: needs {needs} of {memory}, {short} short"
    if prediction.may_not_fit:
        worst = format_bytes(peak.high_process_bytes)
        return f"may not fit {card}: needs {needs} of {memory}, but {worst} at worst"
    spare = format_bytes(prediction.headroom_bytes)
    return f"fits {card}: needs {needs} of {memory}, {spare} to spare"


def short_name(name: str) -> str:
    """A card as people call it.

    >>> short_name("NVIDIA GeForce RTX 4090")
    'RTX 4090'
    """
    return name.removeprefix("NVIDIA ").removeprefix("GeForce ")


def peak_index(timeline: Timeline) -> int:
    """The event where reserved memory is highest, and among those where most is allocated."""
    if not timeline.reserved:
        return timeline.peak_index
    top = timeline.peak_reserved_bytes
    moments = (i for i, reserved in enumerate(timeline.reserved) if reserved == top)
    return max(moments, key=timeline.allocated.__getitem__, default=-1)


def build_peak(trace: Trace, timeline: Timeline, index: int) -> Peak:
    """The peak at event number `index`, and how far the assumptions let it move."""
    allocated = timeline.peak_allocated_bytes
    reserved = timeline.peak_reserved_bytes or allocated
    low_context, context, high_context = trace.device.context_bytes if trace.device else (0, 0, 0)
    low = max(reserved + sum(a.low_bytes for a in trace.assumptions), 0)
    high = reserved + sum(a.high_bytes for a in trace.assumptions)
    ranges = [a.allocated_range for a in trace.assumptions]
    mark = trace.mark_at(index)
    site = site_at(trace, index)
    return Peak(
        allocated, max(allocated + sum(below for below, _ in ranges), 0),
        allocated + sum(above for _, above in ranges),
        reserved, low, high,
        reserved + context, low + low_context, high + high_context,
        mark.name if mark else "", mark.step if mark else 0, site.module, site.operator, site.where,
    )  # fmt: skip


def site_at(trace: Trace, index: int) -> Site:
    """Who made the last allocation up to event number `index`."""
    for event in reversed(trace.events[: index + 1]):
        if isinstance(event, Alloc):
            return event.site
    return Site()


def context_assumption(device: Device | None) -> list[Assumption]:
    """The range of the CUDA context as an assumption, where the catalogue has one."""
    if device is None:
        return []
    low, expected, high = device.context_bytes
    note = device.context_note
    if low == high and not note:
        return []
    what = f"the CUDA context takes {format_bytes(expected)}{note and f', {note}'}"
    depends = "the kernels that are loaded"
    why = f"it depends on {depends}" if note else f"it depends on the driver and on {depends}"
    return [Assumption(what, why, low - expected, high - expected, (0, 0))]


def breakdown_at_peak(trace: Trace, timeline: Timeline, held: Breakdown) -> dict[Category, int]:
    """Bytes of every category of the contract at the moment of `held`; they add up to the process."""
    sizes: dict[Category, int] = dict.fromkeys(_KEYS, 0)
    for category, size in held.by_category().items():
        sizes[Category.TEMPORARY if category is Category.UNKNOWN else category] += size
    if timeline.reserved and held.index >= 0:
        sizes[Category.FRAGMENTATION] = timeline.reserved[held.index] - timeline.allocated[held.index]
    sizes[Category.CONTEXT] = trace.device.context_bytes[1] if trace.device else 0
    return sizes


def build_steps(trace: Trace, timeline: Timeline) -> tuple[Step, ...]:
    """The figures of each step, from its first mark to the next step's first."""
    ranges: dict[int, dict[str, list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    for mark, start, end in trace.phases():
        if mark.step > 0:
            ranges[mark.step][mark.name].append((start, end))
    return tuple(_step(number, phases, timeline) for number, phases in sorted(ranges.items()))


def _step(number: int, phases: dict[str, list[tuple[int, int]]], timeline: Timeline) -> Step:
    spans = [span for ranges in phases.values() for span in ranges]
    start, end = min(s for s, _ in spans), max(e for _, e in spans)
    peaks = {
        name: max((timeline.peak_between(*span)[0] for span in phases[name]), default=None)
        if name in phases
        else None
        for name in PHASES
    }
    allocated, reserved = timeline.peak_between(start, end)
    return Step(
        number, previous_allocated_bytes(timeline, start),
        peaks["forward"], peaks["backward"], peaks["optimizer"],
        allocated, reserved, previous_allocated_bytes(timeline, end),
    )  # fmt: skip


def previous_allocated_bytes(timeline: Timeline, index: int) -> int:
    """Allocated bytes just before event number `index`."""
    if index <= 0 or not timeline.allocated:
        return timeline.baseline_allocated_bytes
    return timeline.allocated[index - 1]


def count_allocations(trace: Trace) -> int:
    return sum(isinstance(event, Alloc) for event in trace.events)


def build_prediction(
    trace: Trace,
    *,
    target: str,
    scenario: dict[str, Any],
    operators: int,
    elapsed_seconds: float,
    versions: tuple[str, str],
    asked_for_a_card: bool,
) -> Prediction:
    """Everything there is to say about a simulated run."""
    timeline = trace.timeline()
    index = peak_index(timeline)
    assumptions = [*trace.assumptions, *context_assumption(trace.device)]
    peak = build_peak(trace, timeline, index)
    device = trace.device or Device("an unnamed device")
    memory = device.memory_bytes if asked_for_a_card else None
    held, grown = trace.breakdown(index), step_growth(trace)
    if grown is not None and memory is not None and peak.process_bytes <= memory:
        grown = replace(grown, more_steps=(memory - peak.process_bytes) // grown.bytes_per_step)
    return Prediction(
        target=target, scenario=scenario, device=device,
        fits=None if memory is None else peak.process_bytes <= memory,
        headroom_bytes=None if memory is None else memory - peak.process_bytes,
        peak=peak,
        breakdown=breakdown_at_peak(trace, timeline, held),
        steps=build_steps(trace, timeline),
        top_modules=build_holders(held),
        top_holders=top_holders(held),
        growth=grown,
        notes=tuple(notes(trace, held)),
        assumptions=tuple(sorted(assumptions, key=lambda a: a.low_bytes - a.high_bytes)),
        operators=operators, allocations=count_allocations(trace), elapsed_seconds=elapsed_seconds,
        memlens=versions[0], torch=versions[1], trace=trace,
    )  # fmt: skip
