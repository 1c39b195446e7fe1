"""`memlens peak`: the highest memory of records, and of each child."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from memlens.errors import UsageError
from memlens.explanation.curves import Curve, sampled_curves, unsampled_curves
from memlens.explanation.explain import as_trace
from memlens.explanation.over_time import ALLOCATED, WORDS, figure_of
from memlens.explanation.prediction_record import recall
from memlens.model import Trace
from memlens.records import folder
from memlens.units import MIB


@click.command(context_settings={"ignore_unknown_options": True})  # -1 is the newest record
@click.option("--func", help="Only while this function ran (its name, or the end of its dotted name).")
@click.option("--json", "as_json", is_flag=True, help="As JSON, in bytes.")
@click.argument("records", nargs=-1, metavar="[FILE|INDEX]...")
def command(records: tuple[str, ...], func: str | None, as_json: bool) -> None:
    """Print the peak of each record (the newest if none is named), and of each child.

    Of predictions and snapshots: what is allocated, reserved, and held by the process.

    \b
    memlens peak
    memlens peak --func load -1
    memlens peak predicted.memlens snapshot.pickle
    """
    rows = [read(str(path), as_trace(path), func) for path in folder.resolve(records)]
    if as_json:
        click.echo(json.dumps({"schema": "memlens.peak/1", "records": rows}))
        return
    for row in rows:
        for number, (label, size) in enumerate(lines(row)):
            click.echo(f"  {label}\t\t\t{size / MIB:.3f} MiB" if number else f"{label}\t{size / MIB:.3f} MiB")


def read(name: str, trace: Trace, func: str | None) -> dict[str, Any]:
    """The peaks of a record, as JSON has them."""
    if figure_of(trace) == ALLOCATED:
        if func is not None:
            raise UsageError(f"{name} records allocations, no calls of functions", hint="leave --func out")
        return {"file": name, "processes": [], **allocated(trace)}
    series = sampled_curves(trace, figure_of(trace)) or (
        unsampled_curves(trace) if figure_of(trace) == "rss" else []
    )
    if not series:
        raise UsageError(f"{name} holds no {WORDS[figure_of(trace)]}")
    return as_row(name, [(curve, peak_of(trace, curve, func)) for curve in series])


def allocated(trace: Trace) -> dict[str, int]:
    """The peaks of allocated and reserved memory; of a prediction the process's as well."""
    timeline, prediction = trace.timeline(), recall(trace)
    peaks = {"peak_allocated_bytes": timeline.peak_allocated_bytes}
    if timeline.reserved:
        peaks["peak_reserved_bytes"] = timeline.peak_reserved_bytes
    if prediction is not None:
        peaks["peak_process_bytes"] = prediction.peak.process_bytes
    return peaks


def lines(row: dict[str, Any]) -> Iterator[tuple[str, int]]:
    """What is printed of a record: its name with the first peak, then the others."""
    if "peak_allocated_bytes" in row:
        yield row["file"], row["peak_allocated_bytes"]
        for kind in ("reserved", "process"):
            if f"peak_{kind}_bytes" in row:
                yield kind, row[f"peak_{kind}_bytes"]
    for number, process in enumerate(row["processes"]):
        yield f"Child {process['pid']}" if number else row["file"], process["peak_bytes"]


def as_row(name: str, peaks: list[tuple[Curve, int]]) -> dict[str, Any]:
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
