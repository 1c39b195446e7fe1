"""Numbers of the page as `charts.packed` writes them."""

from __future__ import annotations


def unpacked(pairs: list[int]) -> list[int]:
    """The numbers again, as page.js reads them."""
    values, value = [], 0
    for step, times in zip(pairs[::2], pairs[1::2], strict=True):
        for _ in range(times):
            value += step
            values.append(value)
    return values
