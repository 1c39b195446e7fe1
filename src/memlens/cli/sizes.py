"""`--memory SIZE`: an amount of memory as people type it."""

from __future__ import annotations

import click

from memlens.errors import UsageError
from memlens.units import MIB, parse_bytes


def with_unit(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """An option's callback: refuses amounts that lack their unit. Nobody who writes 24 means 24 bytes."""
    if value is not None and (size := parse_bytes(value)) < MIB:
        name = param.opts[0]
        raise UsageError(
            f"{name} {value} is {size} bytes", hint=f"give a unit: {name} {value.rstrip('bB ')}GiB"
        )
    return value
