"""Calibrated cards, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from memlens.devices.calibrated import Calibration
from memlens.units import format_bytes, format_count, format_mib

_MEASURED = "{} at the start, {} after a training step, {} at most"


def page(cards: Sequence[Calibration]) -> RenderableType:
    """One paragraph a card."""
    return Group(*(_card(card) for card in cards))


def _card(card: Calibration) -> Text:
    major, minor = card.compute_capability
    text = Text(f"{card.name}", style="bold")
    text.append(f": {format_bytes(card.memory_bytes)}, compute capability {major}.{minor}", style="")
    if card.context_bytes is not None:
        low, expected, high = (format_mib(size) for size in card.context_bytes)
        told = "between {0} and {2}, {1} expected" if card.reading else _MEASURED
        text.append(f"\n  CUDA context: {told.format(low, expected, high)}")
    else:
        text.append(f"\n  CUDA context: n/a: {card.reason}; the catalogue's is used")
    text.append(f"\n  cuBLAS workspace: {format_count(card.cublas_workspace_bytes)} B a handle")
    if card.reading:
        text.append(f"\n  read {card.measured}: {card.reading}")
        return text
    text.append(f"\n  measured {card.measured}, torch {card.torch}, driver {card.driver or 'unknown'}")
    return text
