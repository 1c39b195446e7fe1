"""Optimizers that keep fewer states, or need less while they step."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch

from memlens.advice.change import Change, Untried, proposes
from memlens.advice.facts import TargetFacts
from memlens.advice.shims.eight_bit import AdamW8bit
from memlens.model import Category
from memlens.scenarios.optimizers import NAMES, MakeOptimizer, find_optimizer
from memlens.scenarios.scenario import Scenario

KEEP_TWO_STATES = ("adam", "adamw", "nadam", "radam", "adamax")


def _is_of_torch(facts: TargetFacts) -> bool:
    """An optimizer of torch.optim, whose arguments are known."""
    return facts.is_training and facts.scenario.optimizer in NAMES


def _with_optimizer(
    name: str, make: MakeOptimizer | None, arguments: dict[str, Any]
) -> Callable[[Scenario], Scenario]:
    def apply(scenario: Scenario) -> Scenario:
        return replace(scenario, optimizer=name, make_optimizer=make, optimizer_arguments=arguments)

    return apply


@proposes
def one_kernel(facts: TargetFacts) -> Iterator[Change]:
    """The default steps all parameters at once with temporaries of their size; fused=True has none."""
    scenario = facts.scenario
    if not _is_of_torch(facts):
        return
    cls, given = NAMES[scenario.optimizer], dict(scenario.optimizer_arguments)
    known = inspect.signature(cls).parameters
    if given.get("fused") or given.get("foreach") is False:
        return
    flags = {
        "fused": "fused=True" if "fused" in known else "",
        "foreach": "foreach=False" if "foreach" in known else "",
    }
    costs = {"fused": "faster, too", "foreach": "a slower step: one parameter at a time"}
    for flag, code in flags.items():
        if not code:
            continue
        arguments = {k: v for k, v in given.items() if k != "foreach"} | {flag: flag == "fused"}
        name, make = find_optimizer(scenario.optimizer, arguments)
        yield Change(
            {"fused": "fused-optimizer", "foreach": "foreach-false"}[flag],
            f"{cls.__name__} with {code}",
            f"torch.optim.{cls.__name__}(parameters, ..., {code})",
            costs[flag],
            _with_optimizer(name, make, arguments),
            {"optimizer-arguments": {flag: flag == "fused"}},
            group="optimizer",
        )


@proposes
def eight_bit(facts: TargetFacts) -> Iterator[Change]:
    """States of one byte an element in place of four."""
    if not _is_of_torch(facts) or facts.scenario.optimizer not in KEEP_TWO_STATES:
        return
    if facts.held_bytes(Category.OPTIMIZER_STATE):
        yield Change(
            "8-bit-optimizer",
            "AdamW with 8-bit states (bitsandbytes)",
            "bitsandbytes.optim.AdamW8bit(model.parameters(), ...)",
            "states are rounded to 8 bits, block by block",
            _with_optimizer("adamw8bit", AdamW8bit, {}),
            {"8-bit-optimizer": None},
            changes_result=True,
            group="optimizer",
        )


@proposes
def factored(facts: TargetFacts) -> Iterator[Change]:
    """A row and a column of state for each matrix."""
    available = hasattr(torch.optim, "Adafactor")
    if available and _is_of_torch(facts) and facts.held_bytes(Category.OPTIMIZER_STATE):
        if facts.scenario.optimizer == "adafactor":
            return
        name, make = find_optimizer("adafactor", {})
        yield Change(
            "adafactor",
            "Adafactor, which keeps a row and a column for each matrix",
            "torch.optim.Adafactor(model.parameters(), ...)",
            "another optimizer: learning rate and schedule are to be found anew",
            _with_optimizer(name, make, {}),
            Untried("the script makes its own optimizer; write it there and predict again"),
            changes_result=True,
            group="optimizer",
        )
