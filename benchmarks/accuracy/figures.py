"""Predicted against measured memory, drawn: one picture a table, both axes logarithmic, a colour a family."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

from benchmarks.accuracy.errors import Point

COLOURS = 9  # families beyond the most frequent ones share a grey


def draw(path: Path, title: str, by_figure: dict[str, list[Point]]) -> None:
    """Write an SVG with a panel for each figure; the line is where both agree."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "memlens"  # the same file for the same figures
    from matplotlib import pyplot

    count = len(by_figure)
    drawn, axes = pyplot.subplots(1, count, figsize=(5.0 * count, 4.6), squeeze=False, layout="constrained")
    for axis, (figure, points) in zip(axes[0], by_figure.items(), strict=True):
        families = Counter(point.family for point in points)
        top = [name for name, _ in families.most_common(COLOURS)]
        groups: defaultdict[str, list[Point]] = defaultdict(list)
        for point in points:
            groups[point.family if point.family in top else "others"].append(point)
        for name, group in sorted(groups.items(), key=lambda item: item[0] == "others"):
            measured = [point.measured_mib for point in group]
            predicted = [point.predicted.mib for point in group]
            colour = "0.6" if name == "others" else f"C{top.index(name)}"
            axis.scatter(
                measured, predicted, s=10, color=colour, label=name, zorder=3, rasterized=len(points) > 300
            )
        ends = [min(p.measured_mib for p in points), max(p.measured_mib for p in points)]
        axis.plot(ends, ends, color="0.2", linewidth=0.8)
        axis.set(xscale="log", yscale="log", xlabel="measured MiB", ylabel="predicted MiB", title=figure)
        axis.legend(fontsize=6, loc="upper left")
    drawn.suptitle(title)
    path.parent.mkdir(parents=True, exist_ok=True)
    drawn.savefig(path, metadata={"Date": None})
    pyplot.close(drawn)
