"""Values and names as people type them: `lr=0.1`, `foreach=False`, and the nearest of what exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from memlens.errors import UsageError

_WORDS = {"true": True, "false": False, "none": None}


def parse_value(text: str) -> Any:
    """A Python literal where the text is one, the text itself otherwise.

    >>> parse_value("0.9"), parse_value("(0.9, 0.95)"), parse_value("false"), parse_value("gelu")
    (0.9, (0.9, 0.95), False, 'gelu')
    """
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def parse_arguments(pairs: Iterable[str], option: str) -> dict[str, Any]:
    """`("lr=0.1", "foreach=False")` as a dictionary; several pairs may stand in one text.

    >>> parse_arguments(["lr=0.1 momentum=0.9"], "--optimizer-arg")
    {'lr': 0.1, 'momentum': 0.9}
    """
    arguments: dict[str, Any] = {}
    for pair in (part for text in pairs for part in _split(text)):
        key, equals, value = pair.partition("=")
        if not equals or not key.isidentifier():
            name, value = (*re.split(r"[:\s]+", pair, maxsplit=1), "VALUE")[:2]
            example = f"{name}={value}" if name.isidentifier() and value else "width=64"
            raise UsageError(f"{option} {pair!r} is not NAME=VALUE", hint=f"write it as {option} {example}")
        arguments[key] = parse_value(value)
    return arguments


def _split(text: str) -> list[str]:
    """Parts at spaces, where every part has its own `=`; `betas=(0.9, 0.95)` stays whole."""
    parts = text.split()
    return parts if all("=" in part for part in parts) else [text]


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The known names that look most like `name`, best first.

    >>> nearest("adamW2", ["adam", "adamw", "sgd"], 1)
    ['adamw']
    """
    by_lower = {k.lower(): k for k in known}
    return [by_lower[k] for k in get_close_matches(name.lower(), by_lower, n=count, cutoff=0.5)]


def unknown(what: str, name: str, known: Iterable[str]) -> UsageError:
    """The error for a name that is none of `known`: the nearest ones, or all when there are few."""
    known = list(known)
    close = nearest(name, known)
    if close:
        hint = f"did you mean {' or '.join(close)}?"
    elif len(known) <= 30:
        hint = f"known: {', '.join(sorted(known))}"
    else:
        hint = f"{len(known)} are known, none of them looks like it"
    return UsageError(f"unknown {what} {name!r}", hint=hint)


def check_choice(what: str, name: str, choices: Mapping[str, Any] | Iterable[str]) -> str:
    """`name` itself when it is one of `choices`, whatever its case; the error with the nearest otherwise."""
    known = list(choices)
    if name.lower() not in known:
        raise unknown(what, name, known)
    return name.lower()
