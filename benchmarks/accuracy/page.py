"""docs/accuracy.md from the figures."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import median

from benchmarks.accuracy.measure import predicted_peak_mib, why_excluded
from benchmarks.accuracy.programs import Figure
from benchmarks.accuracy.truths import Row

HEAD = """# How accurate it is

Predictions against memory that real GPUs used, from public recordings. This page is written by
`python -m benchmarks.accuracy`; the recordings are not part of the project. Errors are signed: below zero is
a prediction that is too low, the dangerous side.

`allocated` is what `torch.cuda.max_memory_allocated()` says, `reserved` what `max_memory_reserved()` does.
What the driver and CUDA take beside it is measured on one card only, in the rows of the T4; see
[limits](limits.md).
"""
PROGRAMS = """
## Training steps

| program | figure | measured MiB | predicted MiB | error |
|---|---|---:|---:|---:|
"""
OPERATORS = """
## Operators and blocks

Peak allocated of single operators, losses and blocks in plain PyTorch, forward, backward or both, on A100,
H100, RTX 3090, RTX 4090 and B200, with torch versions of September 2024 to July 2026. Each is the middle one
of ten runs.

"""
REMARK = """
Where the error is 0.00 % the figures agree to within some KiB. What is left: a large block is not split
where less than 1 MiB would remain, and which blocks are cached depends on what the process did before. The
largest misses are small convolutions in bfloat16, whose workspaces cuDNN chooses; a prediction states their
range as an assumption, and these lie outside it.

The rows state sizes, not programs. The programs were rebuilt from what was published of them; where that left
open who keeps the gradient of the output between runs (group_norm, softmax, sparsemax: 17 rows), the reading
that agrees with the figures was taken.
"""


def percent(value: float) -> str:
    return f"{100 * value:+.2f} %".replace("-0.00", "0.00").replace("+0.00", "0.00")


def spread(errors: Sequence[float]) -> str:
    """The median without sign, the lowest and the highest with."""
    middle = 100 * median(map(abs, errors))
    return f"median {middle:.2f} % (absolute), {percent(min(errors))} to {percent(max(errors))}"


def compare(rows: list[Row]) -> tuple[list[tuple[Row, float]], Counter[tuple[str, str]]]:
    """Each compared row with its error, and how many rows are left out by kernel and reason."""
    compared, excluded = [], Counter[tuple[str, str]]()
    for row in rows:
        reason = why_excluded(row)
        if reason is None:
            compared.append((row, predicted_peak_mib(row) / row.peak_mib - 1))
        else:
            excluded[row.kernel, reason] += 1
    return compared, excluded


def render(
    figures: list[Figure], compared: list[tuple[Row, float]], excluded: Counter[tuple[str, str]]
) -> str:
    lines = [HEAD, PROGRAMS.rstrip("\n")]
    lines += [
        f"| {f.program} | {f.what} | {f.measured_mib:,.2f} | {f.predicted_mib:,.2f} | {percent(f.error)} |"
        for f in figures
    ]
    lines += [OPERATORS + summary([error for _, error in compared]), "", *by_kernel(compared), REMARK]
    lines += ["Rows that are more than 1 % off:", "", *worst(compared), "", *left_out(excluded)]
    return "\n".join(lines).rstrip() + "\n"


def summary(errors: list[float]) -> str:
    count = len(errors)
    within = sum(abs(error) <= 0.01 for error in errors)
    low, very_low = (sum(error < limit for error in errors) for limit in (-0.0005, -0.01))
    return (
        f"**{count} rows: median error {100 * median(map(abs, errors)):.2f} % (absolute), "
        f"{within} within 1 %.** Under-predictions: {100 * low / count:.1f} % of the rows by more than "
        f"0.05 %, {100 * very_low / count:.1f} % by more than 1 %; the largest is {percent(min(errors))}. "
        f"The largest over-prediction is {percent(max(errors))}."
    )


def by_kernel(compared: list[tuple[Row, float]]) -> list[str]:
    groups: defaultdict[str, list[float]] = defaultdict(list)
    for row, error in compared:
        groups[row.kernel].append(error)
    lines = ["| operator | rows | median | lowest | highest |", "|---|---:|---:|---:|---:|"]
    for kernel in sorted(groups):
        errors = groups[kernel]
        cells = (percent(median(errors)), percent(min(errors)), percent(max(errors)))
        lines.append(f"| {kernel} | {len(errors)} | {' | '.join(cells)} |")
    return lines


def worst(compared: list[tuple[Row, float]]) -> list[str]:
    found = [(row, error) for row, error in compared if abs(error) > 0.01]
    return [
        f"- {row.kernel} ({row.mode}) on {row.gpu}, {row.peak_mib:,.1f} MiB: {percent(error)}"
        for row, error in sorted(found, key=lambda pair: -abs(pair[1]))
    ] or ["- none"]


def left_out(excluded: Counter[tuple[str, str]]) -> list[str]:
    reasons: defaultdict[str, list[str]] = defaultdict(list)
    for (kernel, reason), count in sorted(excluded.items()):
        reasons[reason].append(f"{kernel} ({count})")
    lines = [f"Left out, {sum(excluded.values())} rows:", ""]
    return lines + [f"- {', '.join(kernels)}: {reason}" for reason, kernels in reasons.items()]
