"""docs/accuracy.md and its JSON from the results."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, NamedTuple

from benchmarks.accuracy.errors import Errors, Point, percentile, sum_up
from benchmarks.accuracy.job import RAN_OUT, Job, Table
from benchmarks.accuracy.rivals import NO_ANSWER
from benchmarks.accuracy.run import Result

SCHEMA = "memlens.accuracy/1"
EACH = 40  # a table with more figures than this lists families, not rows
OFF = 0.05  # rows that are off by more are named
NAMED = 12
HEAD = """# How accurate it is

Predictions against memory that real GPUs used, from public recordings. This page is written by
`make accuracy TRUTH=FOLDER`; the recordings are not part of the project. Errors are signed: below zero is a
prediction that is too low, the dangerous side.

`allocated` is what `torch.cuda.max_memory_allocated()` says, `reserved` what `max_memory_reserved()` does,
and `device` what nvidia-smi shows of the whole card: reserved memory and what the driver and CUDA take beside
it. `inside` is the share of rows whose measured figure lies in the interval that the prediction states,
`width` the median width of that interval as a part of the measured figure.
"""
COLUMNS = (
    "| table | figure | rows | median | median, absolute | 5 % to 95 % | worst | too low by > 1 % | by > 5 % "
    "| inside | width |"
)


class Content(NamedTuple):
    """All that the page shows of one table."""

    table: Table
    jobs: int  # rows with a measured figure, run or not
    results: list[Result]
    left_out: Counter[str]  # reason -> rows


def percent(value: float) -> str:
    return f"{100 * value:+.2f} %".replace("-0.00", "0.00").replace("+0.00", "0.00")


def share(value: float) -> str:
    return f"{100 * value:.0f} %"


def spread(errors: Sequence[float]) -> str:
    """The median without sign, the lowest and the highest with."""
    middle = 100 * median(map(abs, errors))
    return f"median {middle:.2f} % (absolute), {percent(min(errors))} to {percent(max(errors))}"


def content(table: Table, jobs: list[Job], results: Iterable[Result]) -> Content:
    """What was compared, and what was left out and why: by rule, or because it failed."""
    compared, reasons = [], Counter(job.left_out for job in jobs if job.left_out)
    for result in results:
        if result.left_out:
            reasons[result.left_out] += 1
        else:
            compared.append(result)
    return Content(table, sum(not job.left_out for job in jobs), compared, reasons)


def points(part: Content) -> dict[str, list[Point]]:
    """Figure -> its points."""
    found: defaultdict[str, list[Point]] = defaultdict(list)
    for result in part.results:
        for figure, measured in result.measured_mib.items():
            found[figure].append(
                Point(result.key, result.family, measured, result.predicted[figure], part.table.step_mib)
            )
    return found


def errors(part: Content) -> dict[str, Errors]:
    """Figure -> its errors; rows that ran out of memory have none."""
    return {figure: sum_up(found) for figure, found in points(part).items() if figure != RAN_OUT}


def summary_lines(name: str, found: dict[str, Errors]) -> list[str]:
    return [
        f"| {name} | {figure} | {e.rows} | {percent(e.median)} | {100 * e.median_absolute:.2f} % | "
        f"{percent(e.low)} to {percent(e.high)} | {percent(e.worst)} | {share(e.under_1_percent)} | "
        f"{share(e.under_5_percent)} | {share(e.inside)} | {100 * e.interval_width:.1f} % |"
        for figure, e in found.items()
    ]


def render(parts: list[Content], reading: tuple[str, float] | None, more: str = "") -> str:
    """The whole page."""
    lines = [HEAD, "## All tables", "", COLUMNS, "|---|---|" + "---:|" * 9]
    for part in parts:
        lines += summary_lines(part.table.name, errors(part))
    if reading:
        lines += [
            "",
            f"`with one reading`: the row {reading[0]} is taken as a reading of the machine, whose context "
            f"is then {reading[1]:,.0f} MiB, as `memlens calibrate --shows` takes it; it is not compared "
            "itself. The interval is that of what is reserved, and what the reading and the kernels of other "
            "programs may differ by.",
        ]
    for part in parts:
        lines += ["", *section(part)]
    return "\n".join(lines) + "\n" + more


def section(part: Content) -> list[str]:
    """One table: what it is, its rows or families, the worst, the rivals, and what is left out."""
    name = part.table.name
    lines = [f"## {part.table.title}", "", part.table.text, ""]
    if not part.results:
        return [*lines, "Not run."]
    if len(part.results) < part.jobs:
        lines += [f"{len(part.results)} of {part.jobs} rows were run, picked by a hash of their names.", ""]
    lines += [f"![predicted against measured](accuracy/{name}.svg)", ""]
    by_figure = points(part)
    is_short = sum(map(len, by_figure.values())) <= EACH
    lines += row_lines(by_figure) if is_short else family_lines(by_figure)
    if not is_short:
        lines += ["", *far_off(by_figure)]
    if RAN_OUT in by_figure:
        full = by_figure[RAN_OUT]
        seen = sum(point.predicted.mib > point.measured_mib for point in full)
        lines += ["", f"Of {len(full)} rows that ran out of memory, {seen} are predicted not to fit."]
    return [*lines, *rival_lines(part), *left_out_lines(part.left_out)]


def row_lines(by_figure: dict[str, list[Point]]) -> list[str]:
    lines = [
        "| program | figure | measured MiB | predicted MiB | interval | error |",
        "|---|---|---:|---:|---:|---:|",
    ]
    rows = [(p.key, figure, p) for figure, found in by_figure.items() for p in found if figure != RAN_OUT]
    for key, figure, point in sorted(rows, key=lambda row: row[:1]):
        mib, low, high = point.predicted
        lines.append(
            f"| {key} | {figure} | {point.measured_mib:,.2f} | {mib:,.2f} | {low:,.0f} to {high:,.0f} | "
            f"{percent(point.error)} |"
        )
    return lines


def family_lines(by_figure: dict[str, list[Point]]) -> list[str]:
    lines = [
        "| family | figure | rows | median | lowest | highest | inside |",
        "|---|---|---:|---:|---:|---:|---:|",
    ]
    for figure, found in by_figure.items():
        groups: defaultdict[str, list[Point]] = defaultdict(list)
        for point in found if figure != RAN_OUT else ():
            groups[point.family].append(point)
        for family, group in sorted(groups.items()):
            signed = [point.error for point in group]
            cells = (percent(median(signed)), percent(min(signed)), percent(max(signed)))
            inside = share(sum(point.is_inside for point in group) / len(group))
            lines.append(f"| {family} | {figure} | {len(group)} | {' | '.join(cells)} | {inside} |")
    return lines


def far_off(by_figure: dict[str, list[Point]]) -> list[str]:
    """The rows with the largest errors."""
    lines = []
    for figure, found in by_figure.items():
        far = [point for point in found if abs(point.error) > OFF] if figure != RAN_OUT else []
        worst = sorted(far, key=lambda point: -abs(point.error))[:NAMED]
        named = "; ".join(f"{p.key} ({p.measured_mib:,.1f} MiB) {percent(p.error)}" for p in worst)
        if named:
            lines.append(f"- {figure}, {len(far)} rows off by more than {share(OFF)}, the largest: {named}")
    return lines


def rival_lines(part: Content) -> list[str]:
    """What others say of the same rows, against the first figure."""
    asked = [result for result in part.results if result.rivals]
    if not asked:
        return []
    figure = next(iter(asked[0].measured_mib))
    found: defaultdict[str, list[float]] = defaultdict(list)
    failed = Counter[str]()
    for result in asked:
        measured = result.measured_mib[figure]
        found["memlens"].append(result.predicted[figure].mib / measured - 1)
        for name, said in result.rivals.items():
            if isinstance(said, str):
                failed[name] += 1
            else:
                found[name].append(said / measured - 1)
    lines = ["", f"Other estimators on the same rows ({len(asked)}), {figure}:", ""]
    lines += [
        "| estimator | rows | median | median, absolute | 5 % to 95 % | no answer |",
        "|---|" + "---:|" * 5,
    ]
    for name in [*found, *(failed.keys() - found.keys())]:
        signed = found.get(name)
        cells = (
            f"{percent(median(signed))} | {100 * median(map(abs, signed)):.2f} % | "
            f"{percent(percentile(signed, 0.05))} to {percent(percentile(signed, 0.95))}"
            if signed
            else " | | "
        )
        lines.append(f"| {name} | {len(signed or ())} | {cells} | {failed[name] or ''} |")
    lines += [f"| {name} | 0 | | | | {why} |" for name, why in NO_ANSWER.items()]
    return lines


def left_out_lines(reasons: Counter[str]) -> list[str]:
    if not reasons:
        return []
    lines = ["", f"Left out, {sum(reasons.values())} rows:", ""]
    return [*lines, *(f"- {count}: {reason}" for reason, count in sorted(reasons.items()))]


def as_json(parts: list[Content], reading: tuple[str, float] | None, code: str) -> dict[str, Any]:
    """The same figures as data, each row with what was measured and predicted, in MiB."""
    return {
        "schema": SCHEMA,
        "code": code,
        "reading": {"row": reading[0], "context_mib": reading[1]} if reading else None,
        "tables": {
            part.table.name: {
                "rows_with_a_figure": part.jobs,
                "figures": {figure: found.to_dict() for figure, found in errors(part).items()},
                "left_out": dict(part.left_out),
                "rows": [row_of(result) for result in sorted(part.results, key=lambda result: result.key)],
            }
            for part in parts
        },
    }


def row_of(result: Result) -> dict[str, Any]:
    """A row for the JSON, in MiB with two decimals."""
    predicted = {name: [round(mib, 2) for mib in found] for name, found in result.predicted.items()}
    rivals = {name: said if isinstance(said, str) else round(said, 2) for name, said in result.rivals.items()}
    measured = {name: round(mib, 2) for name, mib in result.measured_mib.items()}
    return {
        "row": result.key, "family": result.family, "measured_mib": measured, "predicted_mib": predicted,
        "rivals_mib": rivals,
    }  # fmt: skip
