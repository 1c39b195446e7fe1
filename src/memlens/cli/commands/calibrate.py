"""`memlens calibrate`: measure this machine's card, so that predictions for it use its own figures."""

from __future__ import annotations

import json
from dataclasses import asdict

import click

from memlens.cli.output import print_page
from memlens.devices.calibrated import SCHEMA, calibration_file, load_calibrations, save_calibration


@click.command()
@click.option("--show", is_flag=True, help="Only show what was measured before.")
@click.option("--dry-run", is_flag=True, help="Measure, and keep nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (schema memlens.calibration/1).")
def command(show: bool, dry_run: bool, as_json: bool) -> None:
    """Measure this card's CUDA context and cuBLAS workspace, and keep them for predictions.

    \b
    memlens calibrate
    memlens calibrate --show
    CUDA_VISIBLE_DEVICES=1 memlens calibrate

    Takes some ten seconds on an idle card and less than 1 GiB of it. Predictions for a card of this name use
    its figures from then on, and say so.
    """
    if show:
        cards = list(load_calibrations().values())
    else:
        from memlens.measurement.calibration import calibrate

        card = calibrate(lambda step: click.echo(f"measuring: {step}", err=True))
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
