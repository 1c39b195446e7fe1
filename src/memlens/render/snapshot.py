"""What a torch snapshot shows, for a terminal."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from memlens.explanation.explain import TOP, Explanation, LineUse, Verification
from memlens.explanation.fragmentation import PoolUse
from memlens.explanation.growth import Growth
from memlens.explanation.modules import UNKNOWN, ModuleUse
from memlens.model import Breakdown
from memlens.units import format_bytes, format_count, format_mib


def page(explanation: Explanation, *, replay: bool = False, top: int = TOP) -> RenderableType:
    """The answer of `memlens snapshot` for a terminal."""
    parts: list[RenderableType] = [
        _head(explanation), Text(), _lines(explanation, top), _categories(explanation.held),
    ]  # fmt: skip
    if any(use.module != UNKNOWN for use in explanation.modules[:top]):
        parts += [Text(), _modules(explanation, top)]
    parts += [Text(), _pools(explanation.pools)]
    if explanation.growth is not None:
        parts += [Text(), _growth(explanation.growth)]
    for cause in explanation.causes:
        parts += [Text(), Text("out of memory: ", style="bold red") + Text(cause.text(), style="")]
    if replay and explanation.checked is not None:
        parts += [Text(), _replay(explanation.checked)]
    for assumption in explanation.trace.assumptions:
        parts += [Text(), Text(f"assumed: {assumption.what}: {assumption.why}", style="dim")]
    return Group(*parts)


def _head(explanation: Explanation) -> Text:
    trace, timeline = explanation.trace, explanation.timeline
    events, own = len(trace.events) - explanation.first_event, trace.metadata.get("device")
    card = trace.device.name if trace.device is not None else "the device"
    device = card if own is None else f"cuda:{own}"
    text = Text()
    text.append(
        f"{'peak ' if events else ''}{format_mib(timeline.peak_allocated_bytes)} allocated", style="bold"
    )
    text.append(f", {format_mib(timeline.peak_reserved_bytes)} reserved on {device}")
    if not events:
        text.append(
            " when it was written\nno event was recorded, so this is all that is known: call "
            "torch.cuda.memory._record_memory_history() before what is to be seen"
        )
        return text
    start = timeline.allocated[explanation.first_event - 1] if explanation.first_event else 0
    is_whole = trace.metadata.get("complete", trace.origin == "predicted")
    began = "from the first allocation on" if is_whole else "from the middle of a run"
    text.append(
        f"\n{format_count(events)} events, recorded {began}: "
        f"{format_mib(start)} allocated at the start, "
        f"{format_mib(timeline.allocated[-1])} at the end, "
        f"{format_mib(timeline.reserved[-1] if timeline.reserved else 0)} reserved"
    )
    if explanation.block_bytes != timeline.peak_allocated_bytes:
        text.append(
            f"\nwith the rests of blocks, found by replay, the peak is {format_mib(explanation.block_bytes)}",
            style="dim",
        )
    others = [f"cuda:{number}" for number in trace.metadata.get("devices", []) if number != own]
    if others:
        text.append(f"\nalso recorded: {', '.join(others)} (--device)", style="dim")
    return text


def _lines(explanation: Explanation, top: int) -> Table:
    event = explanation.index - explanation.first_event
    moment = f"at event {format_count(event)}" if event >= 0 else "before the first event"
    held = explanation.held.allocated_bytes
    heading = f"who holds the {format_mib(held)} {moment}"
    return _shares(heading, "line", explanation.lines[:top], held)


def _modules(explanation: Explanation, top: int) -> Table:
    rows = explanation.modules[:top]
    inferred = any(row.inferred for row in rows)
    heading = "by module, inferred from the forward calls in the stacks" if inferred else "by module"
    return _shares(heading, "module", rows, explanation.held.allocated_bytes)


def _shares(heading: str, key: str, rows: Iterable[LineUse | ModuleUse], total: int) -> Table:
    table = Table(title=heading, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column("MiB", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("allocations", justify="right", no_wrap=True)
    table.add_column(key, overflow="fold")
    for row in rows:
        table.add_row(
            format_mib(row.bytes).removesuffix(" MiB"),
            f"{row.bytes / (total or 1):.1%}",
            format_count(row.allocations),
            row[0],
        )
    return table


def _categories(held: Breakdown) -> Text:
    parts = [f"{category.label} {format_mib(size)}" for category, size in held.by_category().items() if size]
    return Text(
        f"by what their stacks and lives tell: {', '.join(parts) or 'nothing is allocated'}", style="dim"
    )


def _growth(growth: Growth) -> Text:
    sizes, change = growth.allocated_bytes, growth.bytes_per_step
    text = Text(
        f"at {format_count(len(sizes))} times {growth.mark}: {format_mib(sizes[1])} allocated the second "
        f"time, {format_mib(sizes[-1])} the last, {format_bytes(change, sign=True)} each"
    )
    for line, size in growth.lines if change > 0 else ():
        text.append(f"\n  {format_bytes(size, sign=True)} each: {line}")
    if growth.inferred:
        text.append(
            "\nno step is named in the recording: this is the line to which its outermost loop came back",
            style="dim",
        )
    return text


def _pools(pools: Iterable[PoolUse]) -> Table:
    table = Table(
        title="reserved and unused at the end",
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
    )
    table.add_column("pool")
    for heading in ("segments", "reserved", "free", "largest free", "empty_cache() releases"):
        table.add_column(heading, justify="right", overflow="fold")
    for use in pools:
        sizes = (use.reserved_bytes, use.free_bytes, use.largest_free_bytes, use.releasable_bytes)
        table.add_row(use.pool, format_count(use.segments), *(format_bytes(size) for size in sizes))
    return table


def _replay(checked: Verification) -> Text:
    verdict = "agrees with" if checked.agrees else "differs from"
    text = Text(
        f"the replay {verdict} the recording", style="bold green" if checked.agrees else "bold yellow"
    )
    text.append(
        f": {format_count(checked.allocations)} allocations, "
        f"{format_count(checked.address_mismatches)} at another address; "
        f"{format_count(checked.segment_mismatches)} segments differ; reserved "
        f"{format_mib(checked.replayed_reserved_bytes)}, recorded "
        f"{format_mib(checked.recorded_reserved_bytes)}",
        style="",
    )
    return text
