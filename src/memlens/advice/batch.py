"""Batches: the largest that fits, and a batch cut into parts whose gradients are summed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from memlens.advice.change import Change
from memlens.advice.evaluator import Evaluator, Outcome, as_outcome
from memlens.advice.facts import TargetFacts
from memlens.advice.result import LargestBatch
from memlens.scenarios.scenario import Scenario

# no step of a training loop has more samples than this; the search ends here where memory does not end it
MOST_SAMPLES = 1 << 20
GROWTH = 8  # from one batch to the next while all of them fit
# parts of a step that are simulated one after the other; the later ones repeat the second
PARTS_SIMULATED = 4
FitsAt = Callable[[int], tuple[bool, int | None]]  # batch size -> fits, and process bytes where known


def search(fits_at: FitsAt, memory_bytes: int, most: int = MOST_SAMPLES, first: int = 1) -> tuple[int, bool]:
    """The largest batch that fits, such that one more does not; 0 if not even 1 does. True if at `most`.

    Memory grows nearly in proportion to the batch, so the line through the last two points guesses best;
    halving is the fallback, which ends the search whatever the curve does.

    >>> search(lambda n: (100 + 7 * n <= 500, 100 + 7 * n), 500)
    (57, False)
    """
    tried: dict[int, int] = {}
    low, high = 0, most + 1  # low fits (or is 0), high does not
    guess, steps = min(first, most), 0
    while high - low > 1:
        fits, process = fits_at(guess)
        steps += 1
        if process is not None:
            tried[guess] = process
        low, high = (guess, high) if fits else (low, guess)
        guess = _guess(tried, low, high, memory_bytes, steps, most)
    return low, low == most


def _guess(tried: dict[int, int], low: int, high: int, memory_bytes: int, steps: int, most: int) -> int:
    """The next batch to try, strictly between `low` and `high`."""
    bounded = high <= most
    beyond = (low + high) // 2 if bounded else low * GROWTH
    line = _on_the_line(sorted(tried.items()), low, memory_bytes)
    guess = beyond if line is None or steps % 4 == 0 else line
    return min(max(guess, low + 1), high - 1)


def _on_the_line(points: list[tuple[int, int]], low: int, memory_bytes: int) -> int | None:
    """Where the line through the two points next to the answer meets the memory; None without such a line."""
    if len(points) < 2:
        return None
    above = next((i for i, (size, _) in enumerate(points) if size > low), len(points) - 1)
    (x1, y1), (x2, y2) = points[max(above, 1) - 1], points[max(above, 1)]
    return x1 + (memory_bytes - y1) * (x2 - x1) // (y2 - y1) if y2 > y1 else None


def largest(evaluator: Evaluator[Any], memory_bytes: int, margin_bytes: int) -> LargestBatch:
    """The largest batch on a card that is smaller by the margin."""
    known: dict[int, Outcome] = {}

    def fits_at(size: int) -> tuple[bool, int | None]:
        predicted = evaluator.predict(evaluator.with_batch(size), f"batch {size}")
        known[size] = as_outcome(predicted)
        return bool(predicted.fits), predicted.peak.process_bytes

    def fits_at_worst(size: int) -> tuple[bool, int | None]:
        if size not in known:
            fits_at(size)
        worst = known[size].high_process_bytes
        return worst <= memory_bytes + margin_bytes, worst

    size, capped = search(fits_at, memory_bytes, first=evaluator.first_batch)
    certain = size
    if size and not fits_at_worst(size)[0]:
        certain, _ = search(
            fits_at_worst, memory_bytes + margin_bytes, most=size - 1, first=max(size // 2, 1)
        )
    after = known.get(size + 1)
    return LargestBatch(
        size,
        known[size].process_bytes if size else None,
        margin_bytes,
        after.process_bytes if after else None,
        capped,
        certain,
    )


def parts_of(facts: TargetFacts, parts: int) -> Change:
    """The batch in `parts` parts of equal size."""
    size = facts.scenario.batch_size // parts
    if not facts.is_training:
        return Change(
            "micro-batch", f"batches of {size}",
            f"for part in batch.split({size}):\n    outputs = model(part)",
            f"{parts} smaller passes in place of one",
            lambda scenario: replace(scenario, batch_size=size), {"batch": size, "accumulate": 1},
            group="batch", detail=f" {size}",
        )  # fmt: skip
    whole = facts.scenario.accumulate * parts
    simulated = min(whole, PARTS_SIMULATED)

    def apply(scenario: Scenario) -> Scenario:
        return replace(scenario, batch_size=size, accumulate=simulated)

    note = "; BatchNorm sees fewer samples at a time" if facts.has_batch_norm else ""
    return Change(
        "micro-batch",
        f"batches of {size}, gradients of {whole} of them summed in a step",
        f"for part, target in zip(batch.split({size}), targets.split({size})):\n"
        f"    (criterion(model(part), target) / {whole}).backward()\noptimizer.step()",
        f"{parts} smaller passes in place of one{note}",
        apply,
        {"batch": size, "accumulate": simulated},
        changes_result=facts.has_batch_norm,
        group="batch",
        detail=f" {size}",
    )


def divisors(facts: TargetFacts) -> list[int]:
    """In how many equal parts a batch can be cut, fewest first; none where it cannot be cut at all."""
    size = facts.scenario.batch_size
    if facts.fixed_batch:
        return []
    return [parts for parts in range(2, size + 1) if size % parts == 0]


def fewest_parts(facts: TargetFacts, evaluator: Evaluator[Any], *others: Change) -> Change | None:
    """The largest part that fits together with `others`; the smallest one where none does."""
    choices = divisors(facts)
    if not choices:
        return None
    low, high = 0, len(choices) - 1  # the last is tried last, so that what fits sooner costs less time
    if not evaluator.has_card:
        return parts_of(facts, choices[0])
    while low < high:
        middle = (low + high) // 2
        outcome = evaluator.outcome(*others, parts_of(facts, choices[middle]))
        if outcome is not None and outcome.fits:
            high = middle
        else:
            low = middle + 1
    return parts_of(facts, choices[low])
