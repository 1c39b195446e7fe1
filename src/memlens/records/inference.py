"""What recorded allocations are for, as far as their stacks and their lives tell.

A snapshot knows no parameters or gradients. Some stacks name them (an optimizer making its state, a module
moving to the GPU); for the rest, time does: what a forward pass leaves for the backward pass is an
activation, what the backward pass leaves behind is a gradient. What neither tells stays unknown.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from memlens.model import Alloc, Category, Event, Free, Site


class Rule(NamedTuple):
    """A frame whose `file:function` matches says what the allocation is for."""

    category: Category
    pattern: re.Pattern[str]


# the first rule that any frame matches; Python files with / whatever the system
RULES = (
    Rule(
        Category.WORKSPACE,
        re.compile(r"getCurrentCUDABlas|[wW]orkspaceSize|getCUDABlasLtWorkspace|cudnn::.*plan"),
    ),
    Rule(Category.COMMUNICATION, re.compile(r"ProcessGroupNCCL|c10d::Reducer")),
    Rule(Category.OPTIMIZER_STATE, re.compile(r"torch/optim/\w+\.py:_init_group$")),
    Rule(Category.TEMPORARY, re.compile(r"torch/optim/\w+\.py:")),
    Rule(Category.PARAMETER, re.compile(r"torch/nn/modules/module\.py:(_apply|convert|to_empty)$")),
    Rule(
        Category.PARAMETER,
        re.compile(r"torch/nn/(modules/\w+|parameter|init)\.py:(__init__|reset_parameters)$"),
    ),
)
_CALL = re.compile(r"torch/nn/modules/module\.py:_call_impl$|:forward$")


class _StackReading(NamedTuple):
    """What a stack says: a category or None, and whether it is inside a forward or a backward pass."""

    category: Category | None
    forward: bool
    backward: bool


def infer_categories(events: list[Event]) -> None:
    """Give every allocation of unknown category the one that its stack and its life tell."""
    readings: dict[int, _StackReading] = {}
    forward: dict[int, Alloc] = {}  # alive, from the forward pass that runs or ran last
    backward: dict[int, Alloc] = {}
    for event in events:
        if isinstance(event, Free):
            for living in (forward, backward):
                if event.id in living:
                    living.pop(event.id).category = Category.TEMPORARY
        elif isinstance(event, Alloc) and event.site.frames:
            says = readings.get(id(event.site)) or readings.setdefault(id(event.site), _read(event.site))
            if event.category is not Category.UNKNOWN:
                continue
            if says.category is not None:
                event.category = says.category
            if says.backward:
                _settle(forward, Category.ACTIVATION)
                if says.category is None:
                    backward[event.id] = event
            else:
                _settle(backward, Category.GRADIENT)
                if says.forward and says.category is None:
                    forward[event.id] = event
    _settle(backward, Category.GRADIENT)


def _settle(living: dict[int, Alloc], category: Category) -> None:
    """The pass is over, and these outlived it."""
    for alloc in living.values():
        alloc.category = category
    living.clear()


def _read(site: Site) -> _StackReading:
    names = [f"{frame.file}:{frame.function}".replace("\\", "/") for frame in site.frames]
    rule = next((rule for rule in RULES if any(rule.pattern.search(name) for name in names)), None)
    forward = not site.backward and any(_CALL.search(name) for name in names)
    return _StackReading(rule.category if rule else None, forward, site.backward)
