"""TARGET: what to predict, as text or as a Python object, made into something that builds a model."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from memlens.errors import MemlensError, TargetError, UsageError
from memlens.model import Assumption
from memlens.scenarios import model_zoo, userfile
from memlens.scenarios.inputs import InputSpec, guess_inputs
from memlens.scenarios.user_frames import last_line, place
from memlens.scenarios.weightless_copy import copy_without_weights

EXAMPLES = "timm:resnet50, hf:config.json, net.py:make_model or package.module:Net"


@dataclass(frozen=True, slots=True)
class Built:
    """A model, what it is usually fed, and what had to be assumed to know that."""

    model: nn.Module
    inputs: Callable[[int | None, bool], tuple[InputSpec, ...]]  # (sequence length, training) -> specs
    assumptions: tuple[Assumption, ...] = ()


@dataclass(frozen=True, slots=True)
class Target:
    """`build()` makes the model; it is called inside the simulation, so weights cost nothing."""

    name: str
    build: Callable[[], Built]


def find_target(target: Any, arguments: Mapping[str, Any]) -> Target:
    """The target that a text such as `timm:resnet50` or a Python object names.

    Raises UsageError for a text of no known form and TargetError for one that names nothing. A model
    object is never built on: what is simulated is a copy of it without its weights.
    """
    if not isinstance(target, str):
        return _from_object(target, arguments)
    scheme, colon, name = target.partition(":")
    if colon and scheme in model_zoo.SCHEMES:
        build = model_zoo.SCHEMES[scheme](name, dict(arguments))
        return Target(target, lambda: Built(*build()))
    place_, colon, name = target.rpartition(":")
    if not colon:
        raise userfile.not_a_target(target, EXAMPLES)
    if not place_ or not name:
        raise UsageError(f"cannot read the target {target!r}", hint=f"write it as {EXAMPLES}")
    userfile.check(place_)
    return Target(target, lambda: _call(userfile.load(place_, name), target, arguments))


def _from_object(thing: Any, arguments: Mapping[str, Any]) -> Target:
    if isinstance(thing, nn.Module):
        name = type(thing).__name__
    elif callable(thing):
        name = getattr(thing, "__qualname__", None) or type(thing).__name__
    else:
        raise UsageError(
            f"cannot predict {thing!r}, of type {type(thing).__name__}",
            hint=f"pass a model, a class, a function that makes one, or a text such as {EXAMPLES}",
        )
    return Target(name, lambda: _call(thing, name, arguments))


def _call(thing: Any, name: str, arguments: Mapping[str, Any]) -> Built:
    """The model that `thing` is or makes, as a copy without weights that may be changed freely."""
    if isinstance(thing, nn.Module):
        if arguments:
            raise UsageError(f"{name} is a model already, so it takes no arguments: {_shown(arguments)}")
        model = copy_without_weights(thing)
    else:
        model = _make(thing, name, arguments)
    return Built(model, lambda seq_len, training: guess_inputs(model, name, seq_len))


def _make(factory: Any, name: str, arguments: Mapping[str, Any]) -> nn.Module:
    if not callable(factory):
        raise TargetError(
            f"{name} is of type {type(factory).__name__}, not a model",
            hint="name an nn.Module, a class or a function that returns one",
        )
    check_arguments(factory, name, arguments)
    try:
        model = factory(**arguments)
    except MemlensError:
        raise
    except Exception as problem:
        raise TargetError(f"{name} failed: {last_line(problem)} ({place(problem)})") from problem
    if not isinstance(model, nn.Module):
        raise TargetError(
            f"{name} returned {type(model).__name__}, not a model",
            hint="name a function that returns an nn.Module",
        )
    return model


def check_arguments(factory: Any, name: str, arguments: Mapping[str, Any]) -> None:
    """Raise the error that names a missing or unknown argument before the factory is called."""
    try:
        signature = inspect.signature(factory)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(**arguments)
    except TypeError as problem:
        needs = [
            p.name
            for p in signature.parameters.values()
            if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        ]
        missing = [n for n in needs if n not in arguments]
        example = f"pass it as --model-arg {missing[0]}=..." if missing else f"it is {name}{signature}"
        raise UsageError(f"{name} cannot be called: {problem}", hint=example) from problem


def _shown(arguments: Mapping[str, Any]) -> str:
    return ", ".join(f"{key}={value!r}" for key, value in arguments.items())
