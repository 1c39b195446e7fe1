"""Bars and charts made of characters, of a given width."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LEVELS = " ▁▂▃▄▅▆▇█"


def bar(share: float, width: int) -> str:
    """A bar of `width` columns at share 1; the smallest visible sliver for anything above nothing.

    >>> bar(0.5, 4), bar(0.0001, 4), bar(0, 4)
    ('██', '▏', '')
    """
    eighths = min(max(round(share * width * 8), 1 if share > 0 else 0), width * 8)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


# what a terminal gets that cannot show block characters; a column of a chart is drawn from half a block up
_PLAIN = str.maketrans(
    dict.fromkeys("▄▅▆▇█▉▊▋▌", "#")
    | dict.fromkeys("▁▂▃▍▎▏", "-")
    | {"┤": "|", "└": "+", "├": "|", "│": "|", "─": "-", "░": ":", "…": "~", "▲": "^", "×": "x"}
)


def encodable(text: str, encoding: str | None) -> str:
    """`text` itself, or drawn with ASCII where the output's encoding has no block characters.

    >>> encodable("██▌ ┤", "ascii")
    '### |'
    """
    try:
        text.encode(encoding or "utf-8")
    except UnicodeEncodeError:
        return text.translate(_PLAIN).encode(encoding or "utf-8", "replace").decode(encoding or "utf-8")
    return text


def chart(values: Sequence[int], height: int, top: int) -> list[str]:
    """`height` lines, the highest first, one column a value; `top` is the value of a full column.

    >>> chart([0, 4, 8], 2, 8)
    ['  █', ' ██']
    """
    lines = []
    for row in reversed(range(height)):
        levels = [min(max(round(value / top * height * 8) - row * 8, 0), 8) if top else 0 for value in values]
        lines.append("".join(_LEVELS[level] for level in levels))
    return lines


def resample(values: Sequence[int], start: int, end: int, columns: int) -> list[int]:
    """The highest of `values[start:end]` in each of `columns` equal spans: a peak is never averaged away.

    >>> resample([1, 9, 2, 3], 0, 4, 2)
    [9, 3]
    """
    count = end - start
    if count <= 0:
        return [0] * columns
    edges = [start + count * i // columns for i in range(columns + 1)]
    return [max(values[a : max(b, a + 1)]) for a, b in pairwise(edges)]
