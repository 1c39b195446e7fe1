"""`memlens report`: one self-contained HTML page from any record."""

from __future__ import annotations

from pathlib import Path

import click

from memlens.cli.output import check_output
from memlens.explanation.explain import as_trace
from memlens.records import folder


@click.command(context_settings={"ignore_unknown_options": True})  # -1 is the newest record
@click.option("-o", "--output", type=click.Path(path_type=Path), help="The page; without it NAME.html here.")
@click.option("--force", is_flag=True, help="Replace the page if it exists.")
@click.argument("record", required=False, metavar="[FILE|INDEX]")
def command(record: str | None, output: Path | None, force: bool) -> None:
    """Write one HTML page from any record (the newest if none is named): it opens offline, anywhere.

    \b
    memlens report snapshot.pickle
    memlens report predicted.memlens -o page.html
    memlens report -1

    Reads memlens' own records, measured and predicted, torch CUDA snapshots, mprof's .dat files and memray's
    captures.
    """
    (path,) = folder.resolve([record] if record else [])
    output = output or Path(f"{path.stem}.html")
    check_output(output, force, (".html",))
    write(path, output)


def write(path: Path, output: Path) -> None:
    from memlens.render.report import to_html

    output.write_text(to_html(as_trace(path), path.name), encoding="utf-8")
    click.echo(f"wrote {output}")
