"""Several changes at once, where no single one is enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memlens.advice.batch import fewest_parts
from memlens.advice.change import Change
from memlens.advice.checkpointing_plan import find_plan
from memlens.advice.evaluator import Evaluator, Outcome
from memlens.advice.facts import TargetFacts
from memlens.advice.result import Combination


def combine(
    ranked: Sequence[tuple[Change, Outcome]], facts: TargetFacts, evaluator: Evaluator[Any], base_bytes: int
) -> Combination | None:
    """A combination that fits, or None. Greedy by what each saves alone, each step simulated.

    First without what alters the result of training; then, where that is not enough, with all.
    """
    careful = [(change, outcome) for change, outcome in ranked if not change.changes_result]
    for choices in (careful, ranked):
        changes = _greedy(choices, evaluator)
        if changes is not None:
            changes = _relaxed(_without_idle(changes, evaluator), facts, evaluator)
            return _described(changes, evaluator, base_bytes)
    return None


def _greedy(ranked: Sequence[tuple[Change, Outcome]], evaluator: Evaluator[Any]) -> list[Change] | None:
    taken: list[Change] = []
    needs: int | None = None
    for change, alone in sorted(ranked, key=lambda pair: pair[1].process_bytes):
        if change.group and any(other.group == change.group for other in taken):
            continue
        outcome = evaluator.outcome(*taken, change) if taken else alone
        if outcome is None or (needs is not None and outcome.process_bytes >= needs):
            continue
        taken.append(change)
        needs = outcome.process_bytes
        if outcome.fits:
            return taken
    return None


def _without_idle(changes: list[Change], evaluator: Evaluator[Any]) -> list[Change]:
    """Leave out what is not needed for it to fit, beginning with what alters the result."""
    for change in sorted(changes, key=lambda c: not c.changes_result):
        others = [other for other in changes if other is not change]
        outcome = evaluator.outcome(*others) if others and change is not changes[-1] else None
        if outcome is not None and outcome.fits:
            changes = others
    return changes


def _relaxed(changes: list[Change], facts: TargetFacts, evaluator: Evaluator[Any]) -> list[Change]:
    """No smaller batch and no more recomputation than is needed with the others."""
    for group, search in (("batch", fewest_parts), ("activations", find_plan)):
        mine = next((c for c in changes if c.group == group), None)
        if mine is None or mine.name == "offload":
            continue
        others = [change for change in changes if change is not mine]
        smaller = search(facts, evaluator, *others)
        if smaller is not None:
            outcome = evaluator.outcome(*others, smaller)
            if outcome is not None and outcome.fits:
                changes = [*others, smaller]
    return changes


def _described(changes: list[Change], evaluator: Evaluator[Any], base_bytes: int) -> Combination:
    outcome = evaluator.outcome(*changes)
    assert outcome is not None
    return Combination(
        tuple(change.name for change in changes),
        "; ".join(change.what for change in changes),
        "\n".join(change.how for change in changes),
        base_bytes - outcome.process_bytes,
        outcome.process_bytes,
        outcome.high_process_bytes,
        bool(outcome.fits),
        any(change.changes_result for change in changes),
        "; ".join(change.cost for change in changes if change.cost),
    )
