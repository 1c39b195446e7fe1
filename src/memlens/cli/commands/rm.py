"""`memlens rm`: remove records by number or name."""

from __future__ import annotations

import click

from memlens.records import folder


@click.command(context_settings={"ignore_unknown_options": True})  # -1 is the newest record
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
@click.argument("records", nargs=-1, required=True, metavar="FILE|INDEX...")
def command(records: tuple[str, ...], dry_run: bool) -> None:
    """Remove records.

    \b
    memlens rm -1
    memlens rm --dry-run 0 1 mprofile_20260131235959.dat
    """
    # all are resolved before any is removed: the numbers are those of `memlens list`
    folder.remove(folder.resolve(records), dry_run, click.echo)
