"""`memlens peak`: the highest memory of records, and of each child."""

from __future__ import annotations

import json

import click

from memlens.errors import UsageError
from memlens.model import Curve, Trace, shown
from memlens.records import folder, load
from memlens.units import MIB


@click.command(context_settings={"ignore_unknown_options": True})  # -1 is the newest record
@click.option("--func", help="Only while this function ran (its name, or the end of its dotted name).")
@click.option("--json", "as_json", is_flag=True, help="As JSON, in bytes.")
@click.argument("records", nargs=-1, metavar="[FILE|INDEX]...")
def command(records: tuple[str, ...], func: str | None, as_json: bool) -> None:
    """Print the peak of each record (the newest if none is named), and of each child.

    \b
    memlens peak
    memlens peak --func load -1
    """
    rows = []
    for path in folder.resolve(records):
        trace = load(path)
        found = shown(trace, trace.metadata.get("figure", "rss"))
        if not found and trace.allocations:
            raise UsageError(
                f"{path} records allocations, no process",
                hint="memlens compare reads it, and memlens snapshot",
            )
        peaks = [(curve, peak_of(trace, curve, func)) for curve in found]
        rows.append((str(path), peaks))
    if as_json:
        click.echo(json.dumps({"schema": "memlens.peak/1", "records": [as_row(*row) for row in rows]}))
        return
    for name, peaks in rows:
        for number, (curve, size) in enumerate(peaks):
            label = f"  Child {curve.pid}\t\t" if number else name
            click.echo(f"{label}\t{size / MIB:.3f} MiB")


def as_row(name: str, peaks: list[tuple[Curve, int]]) -> dict[str, object]:
    processes = [{"pid": curve.pid, "name": curve.name, "peak_bytes": size} for curve, size in peaks]
    return {"file": name, "processes": processes}


def peak_of(trace: Trace, curve: Curve, func: str | None) -> int:
    """The peak of a curve, or its highest sample while a function ran."""
    if func is None:
        return curve.peak_bytes
    calls = [span for span in trace.spans if span.name == func or span.name.endswith(f".{func}")]
    if not calls:
        names = ", ".join(sorted({span.name for span in trace.spans})) or "none"
        raise UsageError(f"the record has no calls of {func!r}", hint=f"functions in it: {names}")
    ends = [max(span.start_bytes, span.end_bytes) for span in calls if span.pid == curve.pid]
    samples = [curve.between(span.started_us, span.ended_us).peak_bytes for span in calls]
    return max(*samples, *ends, 0)
