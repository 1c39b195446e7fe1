"""What to type after an answer."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from memlens.cli.commands import advise

if TYPE_CHECKING:
    from memlens.explanation.prediction import Prediction

_WHERE_TO = ("as_json", "output", "force")  # said anew for each command


def after_prediction(ctx: click.Context, prediction: Prediction) -> str:
    """The line about advice, with the same options, where a card was named and may be too small."""
    if prediction.fits is None or (prediction.fits and not prediction.may_not_fit):
        return ""
    words = shlex.join(["memlens", "advise", *_again(ctx, advise.command)])
    return f"\nNext: {words}\n      says what would make it fit; with --largest-batch, how large a batch does"


def _again(ctx: click.Context, command: click.Command) -> list[str]:
    """The words of this call that another command takes, too: options before the target and its arguments."""
    taken = {parameter.name for parameter in command.params} - set(_WHERE_TO)
    options: list[str] = []
    target: list[str] = []
    for parameter in ctx.command.params:
        name = parameter.name or ""
        if name not in taken or ctx.get_parameter_source(name) is ParameterSource.DEFAULT:
            continue
        value = ctx.params[name]
        values = value if isinstance(value, tuple) else (value,)
        if isinstance(parameter, click.Argument):
            target += map(str, values)
        elif isinstance(parameter, click.Option) and parameter.is_flag:
            options.append(parameter.opts[0])
        else:
            options += [word for each in values for word in (parameter.opts[0], str(each))]
    own = 0 if ctx.params.get("module") else 1  # words before the program's own arguments
    if len(target) > own and (not own or target[0].endswith((".py", ".ipynb"))):
        target.insert(own, "--")
    return [*options, *target]
