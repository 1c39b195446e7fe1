"""Bars and charts: what a column stands for."""

from __future__ import annotations

import pytest

from memlens.render.bars import bar, chart, encodable, resample


@pytest.mark.parametrize(
    ("share", "drawn"), [(0, ""), (0.001, "▏"), (0.5, "██"), (0.9, "███▋"), (1, "████"), (2, "████")]
)
def test_a_bar_is_as_long_as_its_share(share: float, drawn: str) -> None:
    """Four columns are all of it; anything above nothing is visible; nothing runs over."""
    assert bar(share, 4) == drawn


def test_a_chart_stands_on_its_last_line() -> None:
    """Full, three quarters, half and nothing of two lines."""
    assert chart([8, 6, 4, 0], 2, 8) == ["█▄  ", "███ "]
    assert chart([0, 0], 2, 0) == ["  ", "  "]


def test_a_peak_is_never_averaged_away() -> None:
    """One high value among a thousand is the height of its column."""
    values = [1] * 1000
    values[500] = 9
    assert max(resample(values, 0, 1000, 10)) == 9
    assert resample([1, 2], 0, 2, 4) == [1, 1, 2, 2]
    assert resample([], 0, 0, 3) == [0, 0, 0]


def test_a_terminal_without_blocks_gets_ascii() -> None:
    """In ASCII bars are drawn with `#`, and what else cannot be shown is a question mark; UTF-8 stays."""
    assert encodable("██▌▏ ┤└forward é", "ascii") == "###- |+forward ?"
    assert encodable("██▌", "utf-8") == "██▌"
    assert encodable("██▌", None) == "██▌"
