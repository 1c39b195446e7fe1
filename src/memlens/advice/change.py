"""One change of a scenario in words and in code, and the table of those who propose them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from memlens.advice.facts import TargetFacts
from memlens.scenarios.model_edits import ModelEdit
from memlens.scenarios.scenario import Scenario

# what is changed in a script: names of edits (those of `script_edits`, and three that `script_evaluator`
# makes itself), each with its argument, ready for json
ScriptChanges = Mapping[str, Any]


class Untried(NamedTuple):
    """Why a change cannot be made to a script from outside: the reason is shown to the user."""

    why: str


@dataclass(frozen=True, slots=True)
class Change:
    """A scenario made into another one.

    `what` finishes the sentence "it would fit with ...", `how` is code, `cost` says what is paid for it.
    `edit_scenario` makes the change for a model, `edit_script` for a script that is run as it is.
    `changes_result` is true where training would not give the same weights, rounding apart. Of a `group`
    only one makes sense at a time; a change without a group can be combined with any other. `needs_replay`
    is true where a model allocates the same with it: the run as it is, is replayed with its `alloc_conf`.
    """

    name: str
    what: str
    how: str
    cost: str
    edit_scenario: Callable[[Scenario], Scenario]
    edit_script: ScriptChanges | Untried
    changes_result: bool = False
    group: str = ""
    detail: str = ""  # the difference between two changes of one name, such as the blocks of a plan
    needs_replay: bool = False


Proposer = Callable[[TargetFacts], Iterator[Change]]
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
