"""Why memory ran out, for people: numbers first, then who held it, then what would help."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from memlens.model.category import Category
from memlens.model.oom import Failure
from memlens.render.tensors import cells, columns, gap_table
from memlens.units import format_bytes


def text(failure: Failure) -> str:
    """The whole explanation."""
    lines = [f"memlens: out of memory on {failure.device}", *_numbers(failure)]
    if failure.cause:
        lines.append(failure.cause)
    total = sum(failure.by_category.values()) or 1
    kinds = [
        ("other tensors" if category is Category.UNKNOWN else category.label, size)
        for category, size in failure.by_category.items()
        if size >= 0.005 * total
    ]
    lines += _table("held by tensors, by what they are for", kinds)
    if failure.tensors:
        rows = [cells(row) for row in failure.tensors]
        lines += ["", "the biggest tensors", *(f"  {line}" for line in columns(rows))]
    lines += _table("the biggest holders, by module", failure.modules)
    lines += _table("the biggest holders, by line", failure.lines)
    for pool in failure.pools:
        if pool.free_bytes:
            lines.append(
                f"{pool.pool} pool: {format_bytes(pool.free_bytes)} of {format_bytes(pool.reserved_bytes)} "
                f"reserved are free, the largest piece {format_bytes(pool.largest_free_bytes)}"
            )
    if failure.gap is not None:
        lines += ["", "the card", *(f"  {line}" for line in gap_table(failure.gap).splitlines())]
    if failure.advice:
        lines += ["", "what would help"]
        for advice in failure.advice:
            saves = f" (up to {format_bytes(advice.saves_bytes)})" if advice.saves_bytes else ""
            lines.append(f"  - {advice.text}{saves}")
    if failure.unsaved:
        lines += ["", failure.unsaved]
    if failure.record:
        lines += ["", f"recorded in {failure.record}: memlens snapshot {failure.record}"]
    return "\n".join(lines) + "\n"


def _numbers(failure: Failure) -> Iterator[str]:
    asked = format_bytes(failure.asked_bytes) if failure.asked_bytes is not None else "memory"
    place = f" at {failure.where}" if failure.where else ""
    module = f", in module {failure.module}" if failure.module else ""
    yield f"{asked} more was asked for{place}{module}"
    if failure.allocated_bytes is not None and failure.reserved_bytes is not None:
        free = f", {format_bytes(failure.free_bytes)} left" if failure.free_bytes is not None else ""
        size = f" of {format_bytes(failure.total_bytes)}" if failure.total_bytes is not None else ""
        yield (
            f"PyTorch holds {format_bytes(failure.reserved_bytes)}{size}, "
            f"{format_bytes(failure.allocated_bytes)} of it allocated{free}"
        )
    elif failure.total_bytes is not None and failure.free_bytes is not None:
        total, free = format_bytes(failure.total_bytes), format_bytes(failure.free_bytes)
        yield f"this machine has {total}, of which {free} were left (a limit of the process may be lower)"


def _table(title: str, rows: Iterable[tuple[str, int]]) -> list[str]:
    table = list(rows)
    if not table:
        return []
    width = max(len(format_bytes(size)) for _, size in table)
    return ["", title, *(f"  {format_bytes(size):>{width}}  {name}" for name, size in table)]
