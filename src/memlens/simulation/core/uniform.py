"""Answers that any healthy run gives: every number is finite, no gradient overflowed.

Such an answer is one value for all elements of a tensor; what simple operators make of it is one as well.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

Value = bool | int

_COMPARE = {name: getattr(operator, name) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
_SAME = {"all", "any", "clone", "mean", "amax", "amin", "max", "min", "abs", "nan_to_num"}
_NOT = {"logical_not", "bitwise_not"}
_AND = {"logical_and", "bitwise_and"}
_OR = {"logical_or", "bitwise_or"}
_COUNT = {"sum", "count_nonzero"}

FOLLOWED = {*_COMPARE, *_SAME, *_NOT, *_AND, *_OR, *_COUNT}


def result(name: str, args: tuple[Any, ...], value_of: Callable[[Any], Value | None]) -> Value | None:
    """What operator `name` makes of `args`, of which tensors have a value by `value_of`; None: unknown.

    >>> result("sum", (False,), lambda flag: flag)
    0
    >>> result("logical_or", (False, None), lambda flag: flag) is None
    True
    """
    first = value_of(args[0])
    if name in _AND or name in _OR:
        both = (first, value_of(args[1]))
        ends = name in _OR  # this value of one decides
        if ends in both:
            return ends
        return None if None in both else not ends
    if first is None:
        return None
    if name in _SAME:
        return first
    if name in _NOT:
        return not first
    if name in _COUNT:
        return None if first else 0
    if name in _COMPARE and isinstance(args[1], (bool, int, float)):
        return bool(_COMPARE[name](first, args[1]))
    return None
