"""Errors of predictions, summed up: signed, absolute, and whether the stated interval held."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any, NamedTuple

from benchmarks.accuracy.job import Predicted


class Point(NamedTuple):
    """One figure of one row: what was measured, and what was predicted."""

    key: str
    family: str
    measured_mib: float
    predicted: Predicted
    step_mib: float = 0.01  # in which the measured figure was published

    @property
    def error(self) -> float:
        return self.predicted.mib / self.measured_mib - 1

    @property
    def is_inside(self) -> bool:
        """In the stated interval, give or take half the step in which figures were published."""
        half = self.step_mib / 2
        return self.predicted.low_mib - half <= self.measured_mib <= self.predicted.high_mib + half

    @property
    def width(self) -> float:
        return (self.predicted.high_mib - self.predicted.low_mib) / self.measured_mib


class Errors(NamedTuple):
    """Of many points. Shares and errors are fractions; below zero is a prediction that is too low."""

    rows: int
    median: float
    median_absolute: float
    low: float  # the 5th percentile
    high: float  # the 95th
    worst: float  # by size, signed
    worst_row: str
    under_1_percent: float  # share of rows predicted too low by more than 1 %
    under_5_percent: float
    inside: float  # share of rows whose measured figure lies in the stated interval
    interval_width: float  # median, as a part of the measured figure

    def to_dict(self) -> dict[str, Any]:
        return self._asdict()


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which `share` of the sorted values are, between neighbours.

    >>> percentile([1.0, 2.0, 3.0], 0.5), percentile([1.0, 2.0], 0.25)
    (2.0, 1.25)
    """
    values = sorted(values)
    at = share * (len(values) - 1)
    below = int(at)
    above = min(below + 1, len(values) - 1)
    return values[below] + (at - below) * (values[above] - values[below])


def sum_up(points: Sequence[Point]) -> Errors:
    errors = [point.error for point in points]
    worst = max(points, key=lambda point: abs(point.error))
    count = len(points)
    return Errors(
        count, median(errors), median(map(abs, errors)), percentile(errors, 0.05), percentile(errors, 0.95),
        worst.error, worst.key, sum(e < -0.01 for e in errors) / count, sum(e < -0.05 for e in errors) /
        count, sum(point.is_inside for point in points) / count, median(point.width for point in points),
    )  # fmt: skip
