"""`memlens compare`: two records side by side."""

from __future__ import annotations

import json
from pathlib import Path

import click

from memlens.cli.output import check_output, print_page
from memlens.explanation.comparison import KINDS, compare
from memlens.records import folder


@click.command(context_settings={"ignore_unknown_options": True})  # -1 is the newest record
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@click.option("--by", "kinds", multiple=True, type=click.Choice(KINDS), help="Only this; may be repeated.")
@click.option("--top", type=click.IntRange(min=1), default=10, show_default=True, help="Rows of each kind.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (schema memlens.comparison/1).")
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the JSON to a file.")
@click.option("--force", is_flag=True, help="Replace the output file if it exists.")
def command(
    a: str, b: str, kinds: tuple[str, ...], top: int, as_json: bool, output: Path | None, force: bool
) -> None:
    """Show what differs between two records: predicted and measured, or before and after a change.

    \b
    memlens compare predicted.memlens snapshot.pickle
    memlens compare before.memlens after.memlens --by line --top 20
    memlens compare -2 -1
    memlens compare mprofile_1.dat mprofile_2.dat --json

    Both may be any record that memlens reads (.memlens, a torch CUDA snapshot, mprofile_*.dat), or the
    number of one in `memlens list`.
    """
    check_output(output, force)
    comparison = compare(*folder.resolve((a, b)))
    shown = comparison.to_dict()
    if kinds:
        shown["rows"] = [row for row in shown["rows"] if row["kind"] in kinds]
    if output is not None:
        output.write_text(json.dumps(shown, indent=2), encoding="utf-8")
        click.echo(f"wrote {output}")
    elif as_json:
        click.echo(json.dumps(shown, indent=2))
    else:
        from memlens.render.compare import page

        print_page(page(comparison, top=top, kinds=kinds or KINDS))
