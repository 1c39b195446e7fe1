"""A script's own numbers, set from outside: an argument of its command line, or a constant of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from memlens.errors import UsageError
from memlens.scenarios.script.constants import constants
from memlens.scenarios.script.predict_script import Script
from memlens.scenarios.script.source import read_source


def with_value(script: Script, name: str, value: int) -> Script:
    """`script` called with that value of the argument, or with that constant, called `name`.

    An argument that is among `script.arguments` is replaced; else a constant that the script assigns once,
    at its top or in a class; else the argument is added, if the script speaks of it.

    >>> with_value(Script("train.py", ("--batch-size", "64")), "batch_size", 8).arguments
    ('--batch-size', '8')
    """
    name = name.lstrip("-")
    spellings = tuple(dict.fromkeys(f"--{s}" for s in (name, name.replace("_", "-"), name.replace("-", "_"))))
    given = _replaced(script.arguments, spellings, str(value))
    if given is not None:
        return replace(script, arguments=given)
    source = read_source(Path(script.path))
    if not script.command and constants(source).get(name.replace("-", "_")) is not None:
        return replace(script, constants={**script.constants, name.replace("-", "_"): value})
    spoken = next((s for s in spellings if s in source), None)
    if spoken is None and "HfArgumentParser" in source:
        spoken = spellings[0]  # its arguments are the fields of classes
    if spoken is None:
        raise UsageError(
            f"{script.name} has no argument and no constant called {name}",
            hint=f"constants it has: {', '.join(constants(source)) or 'none'}",
        )
    return replace(script, arguments=(*script.arguments, spoken, str(value)))


def _replaced(arguments: tuple[str, ...], spellings: tuple[str, ...], value: str) -> tuple[str, ...] | None:
    for number, argument in enumerate(arguments):
        word, equals, _ = argument.partition("=")
        if word not in spellings:
            continue
        if equals:
            return (*arguments[:number], f"{word}={value}", *arguments[number + 1 :])
        return (*arguments[: number + 1], value, *arguments[number + 2 :])
    return None
