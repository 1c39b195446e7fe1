"""The page of a measured run: processes over time, functions, source lines."""

from __future__ import annotations

from memlens.explanation.curves import Curve, sampled_curves, total
from memlens.explanation.over_time import figure_of
from memlens.explanation.usage import ProcessPeak, Usage, usage
from memlens.model import FIGURES, Span, Trace
from memlens.model.lines import LineTable
from memlens.render.lines import columns_of, notes
from memlens.render.report import charts
from memlens.render.report.blocks import (
    Block,
    Cell,
    Chart,
    Fact,
    Head,
    Section,
    Table,
    count,
    mib,
    place,
    words,
)
from memlens.units import format_bytes, format_count

PROCESSES = 40  # rows
FUNCTIONS = 40


def head(trace: Trace) -> Head:
    """How it ended, and every peak that is known."""
    run = usage(trace)
    figure = figure_of(trace)
    whole = run.whole.get(figure) or next(iter(run.whole.values()), None)
    name = run.command or "the program"
    if whole is None:
        return Head("measured", f"{name} ended before it could be sampled once", "warn", (), ())
    headline = f"Peak of {format_bytes(whole.bytes)}"
    if whole.time_us is not None:
        headline += f" after {whole.time_us / 1e6:,.2f} s"
    children = len(run.processes) - 1
    if children > 0:
        headline += f", {format_count(children)} child{'ren' if children > 1 else ''} included"
    tone = "bad" if run.exit_code else ""
    return Head("measured", headline, tone, [f"{name}: {_ending(run)}."], _facts(run))


def _ending(run: Usage) -> str:
    seconds = f"{run.elapsed_us / 1e6:,.2f} s"
    if not isinstance(run.exit_code, int):
        return f"recorded for {seconds}"
    if run.exit_code < 0:
        return f"ended by signal {-run.exit_code} after {seconds}"
    return f"exit code {run.exit_code} after {seconds}"


def _facts(run: Usage) -> list[Fact]:
    facts = []
    for figure, (_, meaning) in FIGURES.items():
        own = run.program.get(figure)
        if own is not None and (own.bytes or figure != "swap"):
            facts.append(Fact(meaning, format_bytes(own.bytes), _note(own, run, figure)))
    if run.gpu_note:
        facts.append(Fact(FIGURES["gpu"][1], "n/a", run.gpu_note))
    if run.largest_process_bytes:
        size = format_bytes(run.largest_process_bytes)
        facts.append(Fact("one process, between samples", size, "by the system's own count"))
    return facts


def _note(own: ProcessPeak, run: Usage, figure: str) -> str:
    parts = [f"after {own.time_us / 1e6:,.2f} s"] if own.time_us is not None else []
    if len(run.processes) > 1 and figure in run.whole:
        parts.append(f"with children {format_bytes(run.whole[figure].bytes)}")
    rare = "rss" in run.program and own.readings < run.program["rss"].readings
    if rare and own.time_us is not None:  # without a time it is the system's mark, or tracemalloc's
        parts.append(f"at least: {format_count(own.readings)} reading{'s' if own.readings > 1 else ''}")
    return ", ".join(parts)


def sections(trace: Trace) -> list[Section]:
    """The parts in the order they are read."""
    parts = [_course(trace), _at_the_peak(trace), _functions(trace.spans), _lines(trace)]
    return [part for part in parts if part is not None]


def _course(trace: Trace) -> Section | None:
    """A chart for each figure that was read: the one that was asked for first."""
    asked = figure_of(trace)
    order = sorted(FIGURES, key=lambda figure: figure != asked)
    drawn: list[Block] = []
    for figure in order:
        curves = sampled_curves(trace, figure)
        if curves and (figure == asked or any(any(curve.bytes) for curve in curves)):
            spec, note = charts.processes(trace, curves, () if drawn else trace.spans)
            drawn.append(Chart(FIGURES[figure][1], spec, note, wide=not drawn))
    return Section("course", "Memory over time", drawn) if drawn else None


def _at_the_peak(trace: Trace) -> Section | None:
    figure = figure_of(trace)
    curves = sampled_curves(trace, figure)
    if not curves:
        return None
    when = total(curves).sampled_peak[1]
    origin = min(curve.started_us for curve in curves)
    exits = {(process.pid, process.started_us): process.exit_code for process in trace.processes}
    rows = sorted(curves, key=lambda curve: -curve.bytes_at(when))
    whole = sum(curve.bytes_at(when) for curve in curves)
    table = [_process(curve, when, origin, whole, exits) for curve in rows[:PROCESSES]]
    left = len(rows) - PROCESSES
    note = f"{format_count(left)} more processes are not shown." if left > 0 else ""
    columns = ("process", "#at the peak, MiB", "#own peak, MiB", "#from s", "#to s", "#exit code")
    blocks: list[Block] = [Table(f"Processes, {FIGURES[figure][1]}", columns, table, note, wide=True)]
    if trace.metadata.get("top_lines"):
        held = [(place(str(line)), mib(int(size))) for line, size in trace.metadata["top_lines"]]
        blocks.append(Table("Lines that held most when it was last asked", ("line", "#MiB"), held))
    return Section("holders", "Who holds memory at the peak", blocks)


def _process(
    curve: Curve, when: int, origin: int, whole: int, exits: dict[tuple[int, int], int | None]
) -> tuple[Cell, ...]:
    ended = exits.get((curve.pid, curve.started_us))
    return (
        words(charts.name_of(curve)),
        mib(curve.bytes_at(when), whole),
        mib(curve.peak_bytes),
        seconds(curve.started_us - origin),
        seconds(curve.ended_us - origin),
        words("" if ended is None else str(ended)),
    )


def seconds(time_us: int) -> Cell:
    return Cell(f"{time_us / 1e6:,.2f}", time_us)


def _functions(spans: list[Span]) -> Section | None:
    by_name: dict[str, list[Span]] = {}
    for span in spans:
        by_name.setdefault(span.name, []).append(span)
    if not by_name:
        return None
    rows = []
    for name, calls in by_name.items():
        growth = [call.end_bytes - call.start_bytes for call in calls]
        time_us = sum(call.ended_us - call.started_us for call in calls)
        rows.append((words(name), mib(sum(growth)), mib(max(growth)), count(len(calls)), seconds(time_us)))
    rows.sort(key=lambda row: -(row[1].sort or 0))
    left = len(rows) - FUNCTIONS
    note = f"{format_count(left)} more functions are not shown." if left > 0 else ""
    columns = ("function", "#grew by, MiB", "#most kept by a call, MiB", "#calls", "#seconds")
    return Section("functions", "Functions", [Table("", columns, rows[:FUNCTIONS], note)])


def _lines(trace: Trace) -> Section | None:
    """The line tables, as they were printed."""
    try:
        tables = [LineTable.from_dict(table) for table in trace.metadata.get("lines") or []]
    except (TypeError, KeyError, ValueError):
        return None  # another version's, or somebody's own
    return Section("lines", "Line by line", [_line_table(table) for table in tables]) if tables else None


def _line_table(table: LineTable) -> Table:
    extra = columns_of(table)
    largest = max((row.peak_bytes or 0 for row in table.rows), default=0) or 1
    rows = []
    for row in table.rows:
        ran = [_mib(row.usage_bytes), _mib(row.increment_bytes)]
        more = [Cell(say(value := cell(row), 1).removesuffix(" MiB"), value) for _, cell, say in extra]
        share = (row.peak_bytes or 0) / largest
        times = count(row.occurrences) if row.occurrences else words("")
        rows.append((count(row.line), *ran, times, *more, Cell(row.source, share=share)))
    titles = ("#line", "#usage", "#increment", "#times", *(f"#{title.lower()}" for title, _, _ in extra))
    remarks = " ".join(note for note in notes(table) if note)
    title = f"{table.function}, {table.file}:{table.first_line} (MiB)"
    return Table(title, (*titles, "source"), rows, remarks, wide=True, code=True)


def _mib(size: int | None) -> Cell:
    return words("") if size is None else mib(size)
