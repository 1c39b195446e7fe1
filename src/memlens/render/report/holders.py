"""Who holds the peak: by category, line, module and operator."""

from __future__ import annotations

from collections.abc import Callable

from memlens.explanation.address_map import SegmentView
from memlens.explanation.fragmentation import PoolUse, pool_use
from memlens.explanation.held import held_by_name
from memlens.explanation.modules import UNKNOWN, module_of
from memlens.model import Alloc, Breakdown, Category, Trace
from memlens.render.report.blocks import Block, Cell, Section, Table, count, mib, percent, ranked_table, words
from memlens.render.report.strip import strip

TOP = 25


def holders(
    trace: Trace, held: Breakdown, when: str, outside: dict[Category, int], top: int = TOP
) -> Section:
    """The tables at one moment. `outside` is what the process holds outside its allocations."""
    known = any(outside.values()) or any(alloc.category is not Category.UNKNOWN for alloc in held.live)
    tables: list[Block] = [categories(held, outside)] if known else []
    for title, first, key, empty in _KEYS:
        if any(key(alloc) for alloc in held.live):
            sums = held_by_name(trace, held, key)
            tables.append(
                ranked_table(title, first, [(name, *row) for name, row in sums.items()], top, empty)
            )
    return Section("holders", f"Who holds memory at {when}", tables)


def categories(held: Breakdown, outside: dict[Category, int]) -> Table:
    """What the bytes are for, largest first, and what is outside the allocations."""
    sums = dict(held.by_category())
    for category, size in outside.items():
        if size:
            sums[category] = sums.get(category, 0) + size
    whole, longest = sum(sums.values()), max(sums.values(), default=0)
    rows = [
        (words(kind.label, colour=kind.value), mib(size, longest, kind.value), percent(size, whole))
        for kind, size in sorted(sums.items(), key=lambda item: -item[1])
        if size
    ]
    rows.append((words("in all"), mib(whole), percent(whole, whole)))
    return Table("By what it is for", ("category", "#MiB", "#share"), rows)


def _module(alloc: Alloc) -> str:
    """The module's path and class; where only the stack tells, the forward calls that it shows."""
    name, inferred = module_of(alloc.site)
    if name == UNKNOWN:
        return ""
    if inferred:
        return f"{name} (inferred)"
    return f"{name} ({alloc.site.module_type})" if alloc.site.module_type else name


_KEYS: tuple[tuple[str, str, Callable[[Alloc], str], str], ...] = (
    ("By line", "line", lambda alloc: alloc.site.where, "no line is known"),
    ("By module", "module", _module, "no module is known"),
    ("By operator", "operator", lambda alloc: alloc.site.operator, "no operator is known"),
)


def unused(trace: Trace, index: int, when: str) -> Section | None:
    """Memory that is reserved and unused, by pool, and the map of all segments."""
    drawn, segments = strip(trace, index)
    if not segments:
        return None
    blocks: list[Block] = [pools(segments)]
    if drawn is not None:
        blocks.append(drawn)
    return Section("unused", f"Reserved and unused at {when}", blocks, LEAD)


LEAD = (
    "PyTorch takes memory from the driver in segments and cuts blocks from them. The largest free block is "
    "the largest request that needs no new segment; only whole free segments can go back to the driver "
    "(torch.cuda.empty_cache); the rest is pinned by live blocks in the same segment."
)


def pools(segments: list[SegmentView]) -> Table:
    columns = (
        "pool",
        "#segments",
        "#reserved MiB",
        "#free MiB",
        "#largest free MiB",
        "#can go back MiB",
        "#pinned MiB",
    )
    return Table("By pool", columns, [_pool(use) for use in pool_use(segments)], wide=True)


def _pool(use: PoolUse) -> tuple[Cell, ...]:
    sizes = (
        use.reserved_bytes,
        use.free_bytes,
        use.largest_free_bytes,
        use.releasable_bytes,
        use.pinned_bytes,
    )
    return (words(use.pool), count(use.segments), *(mib(size) for size in sizes))
