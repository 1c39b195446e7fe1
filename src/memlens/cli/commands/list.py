"""`memlens list`: the records of this directory, numbered."""

from __future__ import annotations

import json

import click

from memlens.records import folder


@click.command()
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(as_json: bool) -> None:
    """List the records of this directory, oldest first. The numbers are for plot, peak and rm.

    \b
    memlens list
    memlens plot 0
    """
    paths = folder.records()
    if as_json:
        rows = [
            {"index": number, "file": path.name, "made": folder.stamp(path), "bytes": path.stat().st_size}
            for number, path in enumerate(paths)
        ]
        click.echo(json.dumps({"schema": "memlens.list/1", "records": rows}))
        return
    for number, path in enumerate(paths):
        click.echo(f"{number} {path.name} {folder.when(path)}")
