"""A rule's parameters, bound to an operator's schema once, so that a call costs one look-up of positions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from operator import itemgetter
from typing import Any

from torch._ops import OpOverload

Arguments = tuple[Any, ...]
Keywords = dict[str, Any]
Bound = Callable[..., Any]  # (cuda, args, kwargs), of a scratch rule also (..., outputs)


class Signature:
    """The parameters of a rule after `cuda`: `places` of them before a slash, then `names`."""

    def __init__(self, function: Callable[..., Any], gets_outputs: bool = False) -> None:
        self.function, self.gets_outputs = function, gets_outputs
        cuda, *others = inspect.signature(function).parameters.values()
        if cuda.name != "cuda" or any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in others):
            raise ValueError(
                f"rule {function.__name__}: its parameters are `cuda` and the operator's arguments by name"
            )
        self.wants_outputs = gets_outputs and bool(others) and others[-1].name == "outputs"
        if self.wants_outputs:
            others.pop()
        self.places = sum(p.kind is p.POSITIONAL_ONLY for p in others)
        named = others[self.places :]
        self.names = [p.name for p in named]
        self.defaults = {p.name: p.default for p in named if p.default is not p.empty}

    def check(self, operators: list[OpOverload]) -> None:
        """Refuse a parameter that an operator lacks; one with a default need only be an argument of one."""
        for name in self.names:
            lacking = [operator for operator in operators if name not in _arguments(operator)]
            if lacking and (name not in self.defaults or len(lacking) == len(operators)):
                raise ValueError(
                    f"rule {self.function.__name__}: {lacking[0].name()} has no argument `{name}`; "
                    f"it has {', '.join(_arguments(lacking[0]))}"
                )

    def bind(self, operator: OpOverload) -> Bound:
        """The rule as a function of (cuda, args, kwargs), and of outputs if it is a scratch rule."""
        arguments = _arguments(operator)
        if any(name not in arguments and name not in self.defaults for name in self.names):
            self.check([operator])
        position = {name: number for number, name in enumerate(arguments)}
        values = list(arguments.values())  # of what the caller leaves out, then of what only others have
        for name in self.names:
            if name not in position:
                position[name] = len(values)
                values.append(self.defaults[name])
        wanted = [*range(self.places), *(position[name] for name in self.names)]
        return _binding(self.function, wanted, position, tuple(values), self)


def _arguments(operator: OpOverload) -> dict[str, Any]:
    """The names of an operator's arguments, in order, and their defaults (None for one without)."""
    return {a.name: a.default_value if a.has_default_value() else None for a in operator._schema.arguments}


def _binding(
    function: Callable[..., Any],
    wanted: list[int],
    position: dict[str, int],
    values: Arguments,
    signature: Signature,
) -> Bound:
    """Two closures that differ in the outputs alone: they run once an operator."""
    pick: Callable[[Any], Any]
    pick = itemgetter(*wanted) if len(wanted) > 1 else lambda args: [args[n] for n in wanted]
    least = max(wanted, default=-1) + 1

    def by_name(args: Arguments, kwargs: Keywords) -> list[Any]:
        full = [*args, *values[len(args) :]]
        for name, value in kwargs.items():
            full[position[name]] = value
        return full

    def call(cuda: Any, args: Any, kwargs: Keywords, outputs: Any = None) -> Any:
        if kwargs:
            args = by_name(args, kwargs)
        elif len(args) < least:
            args = args + values[len(args) :]
        return function(cuda, *pick(args))

    def call_with_outputs(cuda: Any, args: Any, kwargs: Keywords, outputs: Any) -> Any:
        if kwargs:
            args = by_name(args, kwargs)
        elif len(args) < least:
            args = args + values[len(args) :]
        return function(cuda, *pick(args), outputs=outputs)

    return call_with_outputs if signature.wants_outputs else call
