"""`memlens gpus`: the catalogue, and the cards in this machine."""

from __future__ import annotations

import json
import shutil

import click

from memlens.cli.output import print_page
from memlens.devices import Gpu, all_gpus, find_gpu, installed_gpus
from memlens.devices.names import normalise
from memlens.render.gpus import gpus_document, gpus_page


def select(words: str) -> tuple[Gpu, ...]:
    """The cards whose name or alias holds every word; a name that only the look-up knows gives its card."""
    wanted = normalise(words).split()
    texts = {gpu: " ".join(normalise(name) for name in (gpu.name, *gpu.aliases)) for gpu in all_gpus()}
    cards = tuple(gpu for gpu, text in texts.items() if all(word in text for word in wanted))
    return cards or (find_gpu(words),)


@click.command(no_args_is_help=False)
@click.argument("words", nargs=-1, metavar="[FILTER]")
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON (schema memlens.gpus/1) instead of a table."
)
def command(words: tuple[str, ...], as_json: bool) -> None:
    """List the cards memlens knows, and those in this machine.

    FILTER keeps the cards whose name holds every word.

    \b
    memlens gpus
    memlens gpus 4060 ti
    memlens gpus a100 --json
    """
    gpus = select(" ".join(words)) if words else all_gpus()
    installed = installed_gpus()
    if as_json:
        click.echo(json.dumps(gpus_document(gpus, installed), indent=2))
        return
    print_page(gpus_page(gpus, installed, shutil.get_terminal_size().columns))
