"""The catalogue of cards as a table, as JSON, and the cards in this machine."""

from __future__ import annotations

from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from memlens.devices import Gpu, Installed
from memlens.units import GIB, MIB, format_bytes

SOURCE_FROM_COLUMNS = 140  # below this the sources would be torn into strips
ALL_FROM_COLUMNS = 72  # below this, four columns of figures leave no room for names


def short_name(gpu: Gpu) -> str:
    """The name without the maker's, as people say it."""
    return gpu.name.removeprefix("NVIDIA ").removeprefix("GeForce ").replace(" Generation", "")


def gpus_table(gpus: tuple[Gpu, ...], columns: int) -> RenderableType:
    """One row for each card; the source of its memory too where the terminal is wide enough."""
    wide, narrow = columns >= SOURCE_FROM_COLUMNS, columns < ALL_FROM_COLUMNS
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    table.add_column("card")  # the only column that may wrap
    for heading in ("memory GiB", *(() if narrow else ("capability", "context MiB"))):
        table.add_column(heading, justify="right", no_wrap=True)
    if not narrow:
        table.add_column("reading", no_wrap=True)
    if wide:
        table.add_column("where the memory figure comes from", style="dim")
    for gpu in gpus:
        low, _, high = gpu.context_bytes
        row = [
            short_name(gpu),
            f"{gpu.memory_bytes / GIB:.2f}",
            ".".join(map(str, gpu.compute_capability)),
            f"{low // MIB}-{high // MIB}",
            "read" if gpu.verified else "estimate",
        ]
        table.add_row(*row[: 2 if narrow else None], *([gpu.source] if wide else []))
    return table


def installed_text(installed: Installed) -> Text:
    """The cards in this machine, or one line on why none can be seen."""
    if not installed.cards:
        return Text(f"In this machine: no card can be seen, {installed.reason}")
    text = Text(f"In this machine (driver {installed.driver}):")
    for card in installed.cards:
        known = f"catalogue: {short_name(card.known)}" if card.known else "not in the catalogue"
        used, total = format_bytes(card.used_bytes), format_bytes(card.memory_bytes)
        text.append(f"\n  {card.index}: {card.name}, {used} of {total} in use, {known}")
    return text


def gpus_page(gpus: tuple[Gpu, ...], installed: Installed, columns: int) -> Group:
    """The whole answer of `memlens gpus`."""
    legend = Text(
        "memory: the smallest that torch is known to report; context: what CUDA takes outside PyTorch's "
        "allocator, from the start to a program with every library loaded; estimate: no reading of this card "
        "was found, the figure is on the low side.",
        style="dim",
    )
    return Group(gpus_table(gpus, columns), Text(), legend, Text(), installed_text(installed))


def gpu_row(gpu: Gpu) -> dict[str, Any]:
    """A card as JSON."""
    low, expected, high = gpu.context_bytes
    return {
        "name": gpu.name,
        "aliases": list(gpu.aliases),
        "vendor": gpu.vendor,
        "memory_bytes": gpu.memory_bytes,
        "memory_range_bytes": list(gpu.memory_range),
        "compute_capability": list(gpu.compute_capability),
        "multiprocessors": gpu.multiprocessors,
        "cublas_workspace_bytes": gpu.cublas_workspace_bytes,
        "context_bytes": {"low": low, "expected": expected, "high": high},
        "context_without_cudnn_bytes": dict(
            zip(("low", "expected", "high"), gpu.context.plain_bytes, strict=True)
        ),
        "verified": gpu.verified,
        "source": gpu.source,
        "context_source": gpu.context.note or gpu.context.source,
    }


def gpus_document(gpus: tuple[Gpu, ...], installed: Installed) -> dict[str, Any]:
    """`memlens gpus --json`, schema memlens.gpus/1."""
    return {
        "schema": "memlens.gpus/1",
        "gpus": [gpu_row(gpu) for gpu in gpus],
        "installed": [
            {
                "index": card.index,
                "name": card.name,
                "memory_bytes": card.memory_bytes,
                "used_bytes": card.used_bytes,
                "compute_capability": list(card.compute_capability),
                "catalogue": card.known.name if card.known else None,
            }
            for card in installed.cards
        ],
        "installed_reason": installed.reason or None,
    }
