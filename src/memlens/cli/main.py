"""The `memlens` command: a table of sub-commands, each imported when it is called."""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any, NoReturn

import click

from memlens import __version__
from memlens.errors import MemlensError, MissingExtra, UsageError

# command -> (module in memlens.cli.commands, one line of help). A new command is a new row here and a module
# with a click command named `command`.
COMMANDS: dict[str, tuple[str, str]] = {
    "predict": ("predict", "will it fit, where is the peak, who holds it"),
    "advise": ("advise", "what would make it fit, ranked; the largest batch"),
    "snapshot": ("snapshot", "read a torch CUDA snapshot: peak, holders, why it ran out"),
    "summary": ("summary", "one row per layer, with bytes that are true"),
    "report": ("report", "one self-contained HTML page from any record"),
    "compare": ("compare", "two records side by side: predicted and measured, before and after"),
    "calibrate": ("calibrate", "measure this machine's card, for predictions"),
    "gpus": ("gpus", "the catalogue, and the cards in this machine"),
    "run": ("run", "run a program and record the memory of it and its children"),
    "attach": ("attach", "the same for a process that runs already"),
    "plot": ("plot", "the curve of a record, in the terminal or as a picture"),
    "peak": ("peak", "the highest memory of records, and of each child"),
    "list": ("list", "the records of this directory, numbered"),
    "rm": ("rm", "remove records by number or name"),
    "clean": ("clean", "remove all records of this directory"),
}


class LazyGroup(click.Group):
    """Lists commands from COMMANDS without importing any: `memlens --help` must not load torch."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"memlens.cli.commands.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:  # the reader of the pipe is gone: nobody would see a message
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 141
        return result

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise no_command(args[0])
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] == "help":  # `memlens help run`, as git has it
            args = [*args[1:2], "--help"]
        return super().parse_args(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])


# what people type for a command of ours
MEANT = {
    "attach": ("follow", "watch", "top"),
    "compare": ("diff", "cmp"),
    "gpus": ("cards", "gpu", "devices", "list-gpus"),
    "list": ("ls",),
    "predict": ("estimate", "check", "fit", "simulate"),
    "report": ("html", "open", "view", "show"),
    "rm": ("remove", "delete", "del"),
    "run": ("lines", "profile", "record", "measure", "trace", "mprof"),
    "snapshot": ("explain", "load", "oom"),
    "summary": ("info", "torchinfo", "torchsummary", "model"),
}


def no_command(name: str) -> UsageError:
    """The error for a word that is no command: the one that looks like it, or that means the same."""
    from difflib import get_close_matches

    meant = [command for command, words in MEANT.items() if name in words]
    close = meant or get_close_matches(name, COMMANDS, n=1)
    hint = (
        f"did you mean memlens {close[0]}? memlens --help lists all" if close else "memlens --help lists all"
    )
    return UsageError(f"there is no command {name!r}", hint=hint)


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", prog_name="memlens")
def cli() -> None:
    """Know the memory before you run, measure it while you do, explain every byte.

    \b
    memlens predict examples/vgg16.py:vgg16 --input 3x224x224 --batch-size 32 --gpu 4090
    memlens run --lines train.py
    memlens snapshot snapshot.pickle
    """


def in_our_words(error: click.ClickException) -> UsageError:
    """One of click's errors as all the others are: what was wrong, and a way out."""
    message = error.format_message().strip().rstrip(".")
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "memlens"
    first, _, rest = message.partition("\n")
    hint = " ".join(rest.split()) or f"{command} --help"
    return UsageError(first[:1].lower() + first[1:] if first[:2] != first[:2].upper() else first, hint=hint)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line. An error is one line on stderr and exit code 2; Ctrl-C 130; a closed pipe 141."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller (`>&-`): nobody reads it
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  (until the end)
    try:
        code = cli.main(args=arguments, prog_name="memlens", standalone_mode=False)
    except MemlensError as error:
        click.echo(f"memlens: {error}", err=True)
        sys.exit(2)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        click.echo(f"memlens: {MissingExtra('torch', 'torch', 'this command')}", err=True)
        sys.exit(2)
    except click.ClickException as error:
        is_help = error.format_message().startswith("Usage:")  # of a call without anything
        click.echo(error.format_message() if is_help else f"memlens: {in_our_words(error)}", err=True)
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        click.echo("memlens: stopped by Ctrl-C", err=True)
        sys.exit(130)
    except OSError as error:  # a full disk, a file that may not be written
        name = f": {error.filename}" if error.filename else ""
        click.echo(f"memlens: {error.strerror or error}{name}", err=True)
        sys.exit(2)
    sys.exit(code if isinstance(code, int) else 0)
