"""What every picture shares: colours, axes, the legend, the line of growth."""

from __future__ import annotations

from typing import Any

from memlens.errors import UsageError
from memlens.explanation.curves import Curve
from memlens.units import MIB

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#f0e442")  # Okabe and Ito's
LEGEND_ROWS = 14  # more than this cover the picture; the rest is counted in the last row


def frame(axes: Any, lowest: Any, seconds: tuple[float, float] | None, unit: str = "seconds") -> None:
    """Axes from 0, a pale grid, and the legend next to the curves."""
    lowest.set_xlabel(unit)
    axes.set_ylim(bottom=0)
    axes.set_xlim(*(seconds or (0, None)))
    axes.grid(True, color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    legend(axes)


def legend(axes: Any) -> None:
    handles, labels = axes.get_legend_handles_labels()
    if len(handles) > LEGEND_ROWS:
        more = len(handles) - LEGEND_ROWS
        handles, labels = handles[: LEGEND_ROWS + 1], [*labels[:LEGEND_ROWS], f"… and {more} more"]
    axes.legend(handles, labels, loc="center left", bbox_to_anchor=(1.01, 0.5), fontsize=8, frameon=False)


def slope_line(axes: Any, curve: Curve, origin: int, seconds: tuple[float, float] | None) -> None:
    """The straight line of least squares through the samples: growth a second."""
    if seconds is not None:
        curve = curve.between(*(origin + round(limit * 1e6) for limit in seconds))
    xs = [(time_us - origin) / 1e6 for time_us in curve.times_us]
    ys = [size / MIB for size in curve.bytes]
    count = len(xs)
    if count < 2 or xs[0] == xs[-1]:
        raise UsageError(f"a slope needs two samples, there are {count}", hint="a wider -w window")
    middle_x, middle_y = sum(xs) / count, sum(ys) / count
    steepness = sum((x - middle_x) * (y - middle_y) for x, y in zip(xs, ys, strict=True)) / sum(
        (x - middle_x) ** 2 for x in xs
    )
    ends = [xs[0], xs[-1]]
    axes.plot(
        ends,
        [middle_y + steepness * (x - middle_x) for x in ends],
        color="#444444",
        linestyle=(0, (6, 3)),
        linewidth=1,
        label=f"slope {steepness:+.4g} MiB/s",
    )
