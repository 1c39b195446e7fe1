"""Optimizers by name: all of torch.optim, and `none`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from memlens.errors import UsageError
from memlens.scenarios.constructor_names import check_choice, nearest

NAMES: dict[str, type[Optimizer]] = {
    name.lower(): value
    for name, value in vars(torch.optim).items()
    if inspect.isclass(value) and issubclass(value, Optimizer) and value is not Optimizer
}
NEED_CLOSURE = ("lbfgs",)
MakeOptimizer = Callable[[Iterable[nn.Parameter]], Optimizer]


def find_optimizer(optimizer: Any, arguments: Mapping[str, Any]) -> tuple[str, MakeOptimizer | None]:
    """Its name, and what makes it from parameters: a name, a class of torch.optim, or a function.

    >>> find_optimizer("sgd", {"momentum": 0.9})[0]
    'sgd'
    >>> find_optimizer("none", {})
    ('none', None)
    """
    if optimizer is None or optimizer == "none":
        if arguments:
            raise UsageError(f"optimizer arguments {dict(arguments)} without an optimizer")
        return "none", None
    if isinstance(optimizer, str):
        name = check_choice("optimizer", optimizer, [*NAMES, "none"])
        if name in NEED_CLOSURE:
            raise UsageError(
                f"{name} runs the model itself, several times a step, which the assumed loop does not do",
                hint="simulate a loop of your own: `with memlens.simulate(gpu=...):`",
            )
        return name, _maker(NAMES[name], arguments)
    if inspect.isclass(optimizer) and issubclass(optimizer, Optimizer):
        return optimizer.__name__.lower(), _maker(optimizer, arguments)
    if callable(optimizer):
        return getattr(optimizer, "__name__", "custom"), lambda params: optimizer(params, **arguments)
    raise UsageError(
        f"cannot use {optimizer!r} as an optimizer",
        hint="pass a name such as 'adamw', a class, or a function of the parameters",
    )


def _maker(cls: type[Optimizer], arguments: Mapping[str, Any]) -> MakeOptimizer:
    known = [p for p in inspect.signature(cls).parameters if p not in ("self", "params")]
    for key in arguments:
        if key not in known:
            close = nearest(key, known)
            mean = f"did you mean {' or '.join(close)}? " if close else ""
            takes = f"{mean}{cls.__name__} takes {', '.join(known)}"
            raise UsageError(f"unknown argument of {cls.__name__} {key!r}", hint=takes)

    def make(parameters: Iterable[nn.Parameter]) -> Optimizer:
        try:
            return cls(parameters, **arguments)
        except (TypeError, ValueError) as problem:
            given = ", ".join(f"{k}={v!r}" for k, v in arguments.items())
            raise UsageError(f"{cls.__name__}({given}) refused: {problem}") from problem

    return make
