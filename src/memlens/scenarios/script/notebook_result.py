"""What a notebook's run says in addition: memory after each cell, its variables, what was left out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from memlens.explanation.prediction import previous_allocated_bytes
from memlens.measurement.notebooks.cells import ranges
from memlens.model import Assumption, Timeline, Trace
from memlens.scenarios.script.job import CellRun, NotebookRun


def tables(run: NotebookRun | None, trace: Trace) -> dict[str, Any]:
    """`cells` and `variables`, as the prediction's scenario has them; nothing for a script."""
    if run is None:
        return {}
    timeline = trace.timeline()
    variables = [{"name": name, "bytes": size, "alone_bytes": alone} for name, size, alone in run.variables]
    return {"cells": [_row(cell, timeline) for cell in run.cells], "variables": variables}


def _row(cell: CellRun, timeline: Timeline) -> dict[str, Any]:
    before, after = (previous_allocated_bytes(timeline, index) for index in (cell.start, cell.end))
    return {
        "cell": cell.number,
        "allocated_bytes": after,
        "added_bytes": after - before,
        "peak_bytes": timeline.peak_between(cell.start, cell.end)[0] if cell.end > cell.start else before,
        "stopped": cell.stop is not None,
        "cut_steps": cell.cut_steps,
    }


def notebook_assumptions(steps: int, run: NotebookRun | None, trace: Trace) -> Iterator[Assumption]:
    """What was not seen of a notebook, and what was not run of it."""
    if run is None:
        return
    stopped = [cell.number for cell in run.cells if cell.stop is not None]
    if stopped:
        several = "s" if len(stopped) > 1 else ""
        yield Assumption(
            f"cell{several} {ranges(stopped)} stopped after {steps} step{'s' if steps != 1 else ''}"
            + (" each" if several else ""),
            "the notebook went on with the next one; what these do later was not seen, and what their "
            "functions would have returned was dropped; --steps runs more",
            high_bytes=_might_be_returned(run, trace.timeline()),
        )
    cut = [cell.number for cell in run.cells if cell.cut_steps and cell.stop is None]
    if cut:
        taken = sum(cell.cut_steps for cell in run.cells if cell.stop is None)
        yield Assumption(
            f"loops over data loaders in cell{'s' if len(cut) > 1 else ''} {ranges(cut)} end after "
            f"{steps} step{'s' if steps != 1 else ''}, later epochs after one ({taken} in all)",
            "what they keep of each batch has as many entries; --steps takes more",
        )
    if run.ended:
        yield Assumption(run.ended, "what comes later was not seen; a larger --steps may get further")
    programs = programs_of(run)
    for command in programs:
        yield Assumption(f"not run: !{command}", f"a program of its own: memlens predict {command}")
    others = [what for what in run.left_out if what.removeprefix("!") not in programs]
    if others:
        yield Assumption(
            f"not run: {', '.join(others)}", "what commands would install, download or make has to be there"
        )


def programs_of(run: NotebookRun) -> list[str]:
    """The commands of its cells that start a Python program, which may be what trains."""
    return [what[1:] for what in run.left_out if what.startswith("!") and ".py" in what]


def _might_be_returned(run: NotebookRun, timeline: Timeline) -> int:
    """By how much the peak would rise if what functions held when they were stopped had stayed."""
    dropped = peak = at_worst = 0
    for cell in run.cells:
        highest = timeline.peak_between(cell.start, cell.end)[0] if cell.end > cell.start else 0
        peak, at_worst = max(peak, highest), max(at_worst, highest + dropped)
        if cell.stop is not None:
            held, left = (previous_allocated_bytes(timeline, index) for index in (cell.stop, cell.end))
            dropped += max(held - left, 0)
    return at_worst - peak
