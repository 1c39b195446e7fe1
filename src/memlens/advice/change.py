"""One change of a scenario in words and in code, and the table of those who propose them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from memlens.advice.facts import Facts
from memlens.scenarios.model_edits import ModelEdit
from memlens.scenarios.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Change:
    """A scenario made into another one.

    `what` finishes the sentence "it would fit with ...", `how` is code, `cost` says what is paid for it.
    `about` is what the change is about (blocks, a layer, a size): what a script is told to change.
    `changes_result` is true where training would not give the same weights, rounding apart. Of a `group`
    only one makes sense at a time; a change without one goes with everything.
    """

    name: str
    what: str
    how: str
    cost: str
    apply: Callable[[Any], Any]  # a Scenario into another
    changes_result: bool = False
    group: str = ""
    detail: str = ""  # what tells two changes of one name apart, such as the blocks of a plan
    about: Any = None


Proposer = Callable[[Facts], Iterator[Change]]
TABLE: list[Proposer] = []


def proposes(function: Proposer) -> Proposer:
    """Register a function that looks at the facts and yields what could help; nothing where it cannot.

    >>> @proposes
    ... def smaller_vocabulary(facts):
    ...     return iter(())
    >>> TABLE.pop() is smaller_vocabulary
    True
    """
    TABLE.append(function)
    return function


def with_model_edit(edit: ModelEdit) -> Callable[[Scenario], Scenario]:
    """The change that applies `edit` to the model after those that are there already."""

    def apply(scenario: Scenario) -> Scenario:
        edits = replace(scenario.edits, model=(*scenario.edits.model, edit))
        return replace(scenario, edits=edits)

    return apply
