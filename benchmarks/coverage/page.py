"""docs/coverage.md from the rows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from benchmarks.coverage.compare import AGREES, CRASHES, DIFFERS, NO_HOST, REFUSED, Row

HEAD = """# What it covers

torch's own tables of operators, modules and optimizers (`op_db`, `module_db`, `optim_db`), each row simulated
on a GPU that is not there and compared with a real run of the same samples on the CPU: shapes, strides,
dtypes, devices, the bytes of every storage and the gradients. Where the CPU and CUDA run the same C++, the
peak of allocated bytes must be equal as well; torch's profiler measures it on the CPU. Written by
`python -m benchmarks.coverage`.
"""
TABLES = {"op_db": "operators", "module_db": "modules", "optim_db": "optimizers"}


def render(rows: Sequence[Row], torch_version: str) -> str:
    """The page: totals, what is refused and why, what differs, what crashes."""
    compared = [row for row in rows if row.outcome != NO_HOST]
    uncounted = sum(row.uncounted for row in rows)
    lines = [
        HEAD,
        f"torch {torch_version}; {sum(row.samples for row in rows):,} samples. ",
        *_totals(compared),
    ]
    lines += ["", f"Storages on the simulated device that the ledger does not hold: **{uncounted}**."]
    for outcome, title in ((REFUSED, "Refused"), (DIFFERS, "Differs"), (CRASHES, "Crashes")):
        lines += ["", f"## {title}", "", *_listed(row for row in compared if row.outcome == outcome)]
    lines += [
        "",
        "## As a real card",
        "",
        "These differ from the CPU, and a real card does so, too:",
        "",
        *_known(compared),
    ]
    left_out = [row for row in rows if row.outcome == NO_HOST]
    names = [row.name + (f" ({row.variant})" if row.variant else "") for row in left_out]
    lines += [
        "",
        "## Not compared",
        "",
        f"The CPU runs no sample of {len(names)}: {', '.join(names) or 'none'}.",
    ]
    return "\n".join(lines) + "\n"


def _totals(rows: Sequence[Row]) -> list[str]:
    lines = [
        "",
        "| table | rows | agree | refused | differ | crash | samples whose peak was compared |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for table, words in TABLES.items():
        mine = [row for row in rows if row.table == table]
        if not mine:
            continue
        counts = [sum(row.outcome == o for row in mine) for o in (AGREES, REFUSED, DIFFERS, CRASHES)]
        share = f"{counts[0]:,} ({100 * counts[0] / len(mine):.1f} %)"
        peaks = sum(row.peaks_compared for row in mine)
        rest = " | ".join(f"{count:,}" for count in counts[1:])
        lines.append(f"| {words} (`{table}`) | {len(mine):,} | {share} | {rest} | {peaks:,} |")
    return lines


def _known(rows: Iterable[Row]) -> list[str]:
    reasons: defaultdict[str, set[str]] = defaultdict(set)
    for row in rows:
        for why in row.known:
            reasons[why].add(f"`{row.name}`")
    return [f"- {', '.join(sorted(names))}: {why}" for why, names in sorted(reasons.items())] or ["none"]


def _listed(rows: Iterable[Row]) -> list[str]:
    """One line per reason, with the rows that have it."""
    reasons: defaultdict[str, list[str]] = defaultdict(list)
    for row in rows:
        name = f"`{row.name}`" + (f" ({row.variant})" if row.variant else "")
        reasons[row.what].append(name)
    return [f"- {', '.join(names)}: {why}" for why, names in sorted(reasons.items())] or ["none"]
