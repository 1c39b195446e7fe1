"""`memlens snapshot`: read a torch CUDA snapshot."""

from __future__ import annotations

import json
from pathlib import Path

import click

from memlens.cli.output import check_output, print_page
from memlens.errors import UsageError
from memlens.explanation.explain import Explanation, explain
from memlens.records import kind_of
from memlens.records.snapshot_writer import dumps
from memlens.records.torch_snapshot import load_snapshot


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--replay", "replays", is_flag=True, help="Check the recording against the allocator's rules.")
@click.option(
    "--at",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Show who holds memory then, not at the peak.",
)
@click.option("--top", type=click.IntRange(min=1), default=10, show_default=True, help="Lines to show.")
@click.option("--device", type=click.IntRange(min=0), help="The device to show; the first that was recorded.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (schema memlens.snapshot/1).")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Write a file: .json, .txt, .html (a page), .memlens, or .pickle (a snapshot again).",
)
@click.option("--force", is_flag=True, help="Replace the output file if it exists.")
def command(
    file: Path,
    replays: bool,
    at: float | None,
    top: int,
    device: int | None,
    as_json: bool,
    output: Path | None,
    force: bool,
) -> None:
    """Read what torch.cuda.memory._dump_snapshot(FILE) wrote: peak, holders, fragmentation, why it ran out.

    Needs no GPU and no torch, and runs nothing that is in the file.

    \b
    memlens snapshot snapshot.pickle
    memlens snapshot snapshot.pickle --at 1.5 --top 20
    memlens snapshot snapshot.pickle --replay --json
    memlens snapshot snapshot.pickle -o page.html
    """
    check_output(output, force, ENDINGS)
    refuse_other_records(file)
    explanation = explain(load_snapshot(file, device), at=at)
    if output is not None:
        write(output, explanation, replays, top)
        click.echo(f"wrote {output}")
    elif as_json:
        click.echo(json.dumps(explanation.to_dict(replay=replays, top=top), indent=2))
    else:
        from memlens.render.snapshot import page

        print_page(page(explanation, replay=replays, top=top))


ENDINGS = (".json", ".txt", ".html", ".memlens", ".pickle")


def refuse_other_records(file: Path) -> None:
    """A record of another kind is named, with the commands that read it."""
    kind = kind_of(file)
    if kind is not None and kind.module != "torch_snapshot":
        raise UsageError(
            f"{file} is no torch snapshot but a record of another kind: {kind.name}",
            hint="memlens report, plot, peak and compare read it",
        )


def write(output: Path, explanation: Explanation, replay: bool, top: int) -> None:
    """The file that the ending names."""
    match output.suffix:
        case ".pickle":
            checked = explanation.checked  # where it differs from the recording, the sizes are the rules'
            output.write_bytes(dumps(explanation.trace if checked is None else checked.trace))
        case ".memlens":
            from memlens.records.native import save

            save(explanation.trace, output)
        case ".html":
            from memlens.render.report import to_html

            name = Path(explanation.trace.metadata["source"]).name
            index = None if explanation.is_peak else explanation.index
            page = to_html(explanation.trace, name, index=index, top=top)
            output.write_text(page, encoding="utf-8")
        case ".txt":
            from memlens.render.consoles import as_text
            from memlens.render.snapshot import page as terminal_page

            text = as_text(terminal_page(explanation, replay=replay, top=top), width=100)
            output.write_text(text, encoding="utf-8")
        case _:
            document = explanation.to_dict(replay=replay, top=top)
            output.write_text(json.dumps(document, indent=2), encoding="utf-8")
