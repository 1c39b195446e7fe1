"""What `memlens predict` and `memlens advise` take: a target with its arguments, or a command line."""

from __future__ import annotations

from typing import Any

import click

from memlens.cli.options import COMMON_OPTIONS, SCRIPT_OPTIONS, refuse
from memlens.errors import UsageError

SCRIPTS = (".py", ".ipynb")


class TargetCommand(click.Command):
    """Where a command line begins (`python`, `torchrun`, `yolo`), memlens's own options have ended."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        from memlens.scenarios.command_lines.names import is_command

        words = self._words(ctx, args)
        start = len(args) - len(words)
        if words and args[start - 1 : start] != ["--"] and is_command(words[0]):
            args = [*args[:start], "--", *words]
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as problem:
            if not words or "--" in args or not words[0].endswith(SCRIPTS):
                raise
            hint = (
                f"if it is the program's own: memlens {ctx.info_name} {words[0]} ... -- {problem.option_name}"
            )
            raise UsageError(
                f"memlens {ctx.info_name} has no option {problem.option_name}", hint=hint
            ) from problem

    def _words(self, ctx: click.Context, args: list[str]) -> list[str]:
        """All from the first word on that is no option; none if wrong, which is said later."""
        parser = self.make_parser(ctx)
        parser.allow_interspersed_args = False
        try:
            words = parser.parse_args(list(args))[0].get("words")
        except click.UsageError:
            return []
        return list(words) if isinstance(words, tuple) else []


def target_of(words: tuple[str, ...], module: str | None, given: set[str], command: str) -> Any:
    """The `Script` that the words name, or the text of a target that is a model.

    Options and arguments that mean nothing for it are refused.
    """
    from memlens.scenarios.command_lines.names import is_command

    if module is not None:
        refuse(given & {"cells"}, f"-m {module}", "it is for notebooks: train.ipynb")
        refuse(
            given - SCRIPT_OPTIONS - COMMON_OPTIONS, f"-m {module}", "the program says that itself, after --"
        )
        from memlens.scenarios.command_lines.read import read_module

        return read_module(module, words)
    if not words:
        raise UsageError("no target was named", hint=f"memlens {command} train.py --gpu T4 -- --epochs 3")
    target, arguments = words[0], words[1:]
    if "cells" in given and not target.endswith(".ipynb"):
        refuse({"cells"}, target, "it is for notebooks: train.ipynb")
    if target.endswith(SCRIPTS) or is_command(target):
        refuse(given - SCRIPT_OPTIONS - COMMON_OPTIONS, target, "a script says that itself, after --")
        from memlens.scenarios.command_lines.read import read_command_line

        return read_command_line(list(words))
    refuse(given & SCRIPT_OPTIONS, target, f"it is for scripts: memlens {command} train.py")
    if arguments:
        raise UsageError(f"{target} takes no arguments: {' '.join(arguments)}", hint="--model-arg NAME=VALUE")
    return target
