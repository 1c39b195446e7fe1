"""`memlens clean`: remove all records of this directory."""

from __future__ import annotations

import click

from memlens.records import folder


@click.command()
@click.option("--dry-run", is_flag=True, help="Only say what would be removed.")
def command(dry_run: bool) -> None:
    """Remove every record with a default name (memlens_*.memlens, mprofile_*.dat) from this directory.

    \b
    memlens clean --dry-run
    """
    folder.remove(folder.records(), dry_run, click.echo)
