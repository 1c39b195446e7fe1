"""`memlens calibrate`: a card's own figures, measured or read, for predictions."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from memlens.cli.options import with_unit
from memlens.cli.output import print_page
from memlens.devices.calibrated import (
    SCHEMA,
    Calibration,
    calibration_file,
    load_calibrations,
    save_calibration,
)
from memlens.errors import UsageError
from memlens.units import format_mib, parse_bytes

if TYPE_CHECKING:
    from memlens.devices import Gpu
    from memlens.devices.reading import Reserved


@click.command(context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--show", is_flag=True, help="Only show what was measured before.")
@click.option("--dry-run", is_flag=True, help="Measure, and keep nothing.")
@click.option("--gpu", help="Of --idle: the card that was read.")
@click.option(
    "--idle", metavar="SIZE", callback=with_unit, help="What a CUDA process without work holds on --gpu."
)
@click.option(
    "--shows", metavar="SIZE", callback=with_unit, help="What nvidia-smi shows while what PREDICT says runs."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON (schema memlens.calibration/1).")
@click.argument("line", nargs=-1, type=click.UNPROCESSED, metavar="[PREDICT ...]")
def command(
    show: bool,
    dry_run: bool,
    gpu: str | None,
    idle: str | None,
    shows: str | None,
    as_json: bool,
    line: tuple[str, ...],
) -> None:
    """Measure this card's CUDA context and cuBLAS workspace, and keep them for predictions.

    \b
    memlens calibrate
    memlens calibrate --show
    CUDA_VISIBLE_DEVICES=1 memlens calibrate

    Takes some ten seconds on an idle card and less than 1 GiB of it. Predictions for a card of this name use
    its figures from then on, and say so.

    Where memlens cannot run beside the card, one figure that you read there is enough: of an idle process,
    or what nvidia-smi shows during a program that memlens can predict, written as the predict command is.

    \b
    memlens calibrate --gpu T4 --idle 487MiB
    memlens calibrate --shows 2190MiB predict train.py --gpu T4
    """
    _check(show, gpu, idle, shows, line)
    if show:
        cards = list(load_calibrations().values())
    else:
        card = _read(gpu, idle, shows, line) or _measured()
        cards = [card]
        if not dry_run:
            click.echo(f"kept in {save_calibration(card)}", err=True)
    if as_json:
        click.echo(json.dumps({"schema": SCHEMA, "cards": {c.name: asdict(c) for c in cards}}, indent=2))
        return
    if not cards:
        click.echo(f"no card was calibrated: there is no {calibration_file()}")
        return
    from memlens.render.calibrate import page

    print_page(page(cards))


def _check(show: bool, gpu: str | None, idle: str | None, shows: str | None, line: tuple[str, ...]) -> None:
    """Refuse options that do not belong together."""
    if sum((show, idle is not None, shows is not None)) > 1:
        raise UsageError("--show, --idle and --shows are three things to do", hint="give one of them")
    if idle is not None and gpu is None:
        raise UsageError(f"--idle {idle} is of a card, and none is named", hint="name it with --gpu T4")
    if idle is None and gpu is not None:
        raise UsageError(
            f"--gpu {gpu} says which card --idle is of, and there is no --idle",
            hint=f"memlens calibrate --gpu {gpu} --idle 487MiB; without both this machine's card is measured",
        )
    if shows is not None and not line:
        raise UsageError(
            f"--shows {shows} needs the program that ran",
            hint=f"memlens calibrate --shows {shows} predict train.py --gpu T4",
        )
    if shows is None and line:
        raise UsageError(
            f"{' '.join(line)} says what ran, and not what was shown", hint="--shows 2190MiB says it"
        )


def _read(gpu: str | None, idle: str | None, shows: str | None, line: tuple[str, ...]) -> Calibration | None:
    """A card's figures from what somebody read; None where nothing was."""
    from memlens.devices import find_in_catalogue, reading

    if gpu is not None and idle is not None:
        card = find_in_catalogue(gpu)
        calibration = reading.of_idle_process(card, parse_bytes(idle))
    elif shows is not None:
        card, reserved, name = _predicted(line)
        calibration = reading.of_running_program(card, parse_bytes(shows), reserved, name)
    else:
        return None
    _doubt(card, calibration)
    return calibration


def _measured() -> Calibration:
    from memlens.measurement.calibration import calibrate

    return calibrate(lambda step: click.echo(f"measuring: {step}", err=True))


def _predicted(line: tuple[str, ...]) -> tuple[Gpu, Reserved, str]:
    """The card of a predict command, what its program reserves, and the program's name."""
    from memlens.cli.commands import predict
    from memlens.devices import find_in_catalogue
    from memlens.devices.reading import Reserved
    from memlens.scenarios.cards import has_cudnn

    words = [word for place, word in enumerate(line) if place > 1 or word not in ("memlens", "predict")]
    inner = predict.command.make_context("predict", words)
    options = {name: value for name, value in inner.params.items() if name not in predict.RESULT_OPTIONS}
    gpu = options["gpu"]
    if gpu is None:
        raise UsageError(
            f"{' '.join(line)} names no card", hint="say on which it was read: predict ... --gpu T4"
        )
    prediction = predict.predicted(inner, options.pop("words"), options.pop("module"), options)
    peak = prediction.peak
    reserved = Reserved(
        peak.low_reserved_bytes, peak.reserved_bytes, peak.high_reserved_bytes, has_cudnn(prediction.trace)
    )
    return find_in_catalogue(gpu), reserved, prediction.target


def _doubt(card: Gpu, calibration: Calibration) -> None:
    """Say so where a figure is far from all that is known of the card."""
    low, _, high = card.context_bytes
    _, context, _ = calibration.context_bytes or card.context_bytes
    if not low // 2 <= context <= 2 * high:
        known = f"{format_mib(low, precision=0)} to {format_mib(high, precision=0)}"
        click.echo(
            f"a context of {format_mib(context)} is far from what is known of a {card.name}, {known}: "
            "is something else on the card?",
            err=True,
        )
