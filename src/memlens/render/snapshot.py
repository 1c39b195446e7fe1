"""What a torch snapshot shows, for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from memlens.model import Category
from memlens.units import format_bytes, format_count, format_mib


def page(shown: Mapping[str, Any]) -> RenderableType:
    """The answer of `memlens snapshot` for a terminal, from its JSON document."""
    parts: list[RenderableType] = [_head(shown), Text(), _holders(shown["at"]), _categories(shown["at"])]
    if any(row["module"] != "?" for row in shown["at"]["modules"]):
        parts += [Text(), _modules(shown["at"])]
    parts += [Text(), _pools(shown)]
    if shown["growth"]:
        parts += [Text(), _growth(shown["growth"])]
    for failure in shown["out_of_memory"]:
        parts += [Text(), Text("out of memory: ", style="bold red") + Text(failure["cause"], style="")]
    if "replay" in shown:
        parts += [Text(), _replay(shown["replay"])]
    for assumption in shown["assumptions"]:
        parts += [Text(), Text(f"assumed: {assumption['what']}: {assumption['why']}", style="dim")]
    return Group(*parts)


def _head(shown: Mapping[str, Any]) -> Text:
    peak = shown["peak"]
    text = Text()
    text.append(
        f"{'peak ' if shown['events'] else ''}{format_mib(peak['allocated_bytes'])} allocated", style="bold"
    )
    text.append(f", {format_mib(peak['reserved_bytes'])} reserved on cuda:{shown['device']}")
    if not shown["events"]:
        text.append(
            " when it was written\nno event was recorded, so this is all that is known: call "
            "torch.cuda.memory._record_memory_history() before what is to be seen"
        )
        return text
    began = "from the first allocation on" if shown["complete"] else "from the middle of a run"
    text.append(
        f"\n{format_count(shown['events'])} events, recorded {began}: "
        f"{format_mib(shown['start_allocated_bytes'])} allocated at the start, "
        f"{format_mib(shown['end_allocated_bytes'])} at the end, "
        f"{format_mib(shown['reserved_bytes'])} reserved"
    )
    if peak["block_bytes"] != peak["allocated_bytes"]:
        text.append(
            f"\nwith the rests of blocks, found by replay, the peak is {format_mib(peak['block_bytes'])}",
            style="dim",
        )
    others = [number for number in shown["devices"] if number != shown["device"]]
    if others:
        text.append(
            f"\nalso recorded: {', '.join(f'cuda:{number}' for number in others)} (--device)", style="dim"
        )
    return text


def _holders(at: Mapping[str, Any]) -> Table:
    moment = f"at event {format_count(at['event'])}" if at["event"] >= 0 else "before the first event"
    heading = f"who holds the {format_mib(at['allocated_bytes'])} {moment}"
    return _shares(heading, "line", at["holders"], at["allocated_bytes"])


def _modules(at: Mapping[str, Any]) -> Table:
    inferred = any(row["inferred"] for row in at["modules"])
    heading = "by module, inferred from the forward calls in the stacks" if inferred else "by module"
    return _shares(heading, "module", at["modules"], at["allocated_bytes"])


def _shares(heading: str, key: str, rows: Iterable[Mapping[str, Any]], total: int) -> Table:
    table = Table(title=heading, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column("MiB", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    table.add_column("allocations", justify="right", no_wrap=True)
    table.add_column(key, overflow="fold")
    for row in rows:
        table.add_row(
            format_mib(row["bytes"]).removesuffix(" MiB"),
            f"{row['bytes'] / (total or 1):.1%}",
            format_count(row["allocations"]),
            row[key],
        )
    return table


def _categories(at: Mapping[str, Any]) -> Text:
    parts = [f"{Category(name).label} {format_mib(size)}" for name, size in at["categories"].items() if size]
    return Text(
        f"by what their stacks and lives tell: {', '.join(parts) or 'nothing is allocated'}", style="dim"
    )


def _growth(found: Mapping[str, Any]) -> Text:
    sizes, change = found["allocated_bytes"], found["bytes_per_step"]
    text = Text(
        f"at {format_count(len(sizes))} times {found['mark']}: {format_mib(sizes[1])} allocated the second "
        f"time, {format_mib(sizes[-1])} the last, {format_bytes(change, sign=True)} each"
    )
    for row in found["lines"] if change > 0 else ():
        text.append(f"\n  {format_bytes(row['bytes_per_step'], sign=True)} each: {row['line']}")
    if found["inferred"]:
        text.append(
            "\nno step is named in the recording: this is the line to which its outermost loop came back",
            style="dim",
        )
    return text


def _pools(shown: Mapping[str, Any]) -> Table:
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
    for use in shown["pools"]:
        sizes = ("reserved_bytes", "free_bytes", "largest_free_bytes", "releasable_bytes")
        table.add_row(
            use["pool"], format_count(use["segments"]), *(format_bytes(use[name]) for name in sizes)
        )
    return table


def _replay(replayed: Mapping[str, Any]) -> Text:
    wrong = replayed["address_mismatches"] + replayed["segment_mismatches"]
    verdict = "agrees with" if not wrong else "differs from"
    text = Text(f"the replay {verdict} the recording", style="bold green" if not wrong else "bold yellow")
    text.append(
        f": {format_count(replayed['allocations'])} allocations, "
        f"{format_count(replayed['address_mismatches'])} at another address; "
        f"{format_count(replayed['segment_mismatches'])} segments differ; reserved "
        f"{format_mib(replayed['replayed_reserved_bytes'])}, recorded "
        f"{format_mib(replayed['recorded_reserved_bytes'])}",
        style="",
    )
    return text
