"""`memlens snapshot`: read a torch CUDA snapshot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from memlens.allocator import from_snapshot, verify
from memlens.cli.output import as_text, check_output, print_page
from memlens.errors import UsageError
from memlens.explanation.fragmentation import pool_use
from memlens.explanation.modules import module_uses
from memlens.explanation.oom_cause import before, causes
from memlens.explanation.recording import document
from memlens.model import Trace
from memlens.records import kind_of
from memlens.records.snapshot_writer import dumps
from memlens.records.torch_snapshot import load_snapshot


def index_at(trace: Trace, seconds: float) -> int:
    """The number of the last event within `seconds` of the first recorded one."""
    last: int = trace.metadata["baseline_events"] - 1
    for number in range(last + 1, len(trace.events)):
        if trace.events[number].time_us > seconds * 1e6:
            break
        last = number
    return last


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
    trace = load_snapshot(file, device)
    config = from_snapshot(trace.metadata["allocator_settings"])
    checked = verify(trace, config)
    if checked.complete and checked.agrees:
        trace = checked.trace  # the true size of every block is known
    held = trace.breakdown(None if at is None else index_at(trace, at))
    segments = checked.segments if at is None else verify(before(trace, held.index + 1), config).segments
    found = causes(trace, config)
    modules = [use._asdict() for use in module_uses(held)]
    shown = document(
        trace, held, pool_use(segments), found, checked, modules=modules, replay=replays, top=top
    )
    if output is not None:
        write(output, checked.trace, trace, shown, None if at is None else held.index, top)
        click.echo(f"wrote {output}")
    elif as_json:
        click.echo(json.dumps(shown, indent=2))
    else:
        from memlens.render.snapshot import page

        print_page(page(shown))


ENDINGS = (".json", ".txt", ".html", ".memlens", ".pickle")


def refuse_other_records(file: Path) -> None:
    """A record of another kind is named, with the commands that read it."""
    kind = kind_of(file)
    if kind is not None and kind.module != "torch_snapshot":
        raise UsageError(
            f"{file} is no torch snapshot but a record of another kind: {kind.name}",
            hint="memlens report, plot, peak and compare read it",
        )


def write(
    output: Path, sized: Trace, trace: Trace, shown: dict[str, Any], index: int | None, top: int
) -> None:
    """The file that the ending names. `sized` has every block at its true size, `trace` is what was shown."""
    match output.suffix:
        case ".pickle":
            output.write_bytes(dumps(sized))
        case ".memlens":
            from memlens.records.native import save

            save(trace, output)
        case ".html":
            from memlens.render.report import to_html

            name = Path(shown["file"]).name
            output.write_text(to_html(trace, name, index=index, top=top), encoding="utf-8")
        case ".txt":
            from memlens.render.snapshot import page

            output.write_text(as_text(page(shown)), encoding="utf-8")
        case _:
            output.write_text(json.dumps(shown, indent=2), encoding="utf-8")
