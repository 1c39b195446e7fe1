"""Line tables as data: children's added up, and the way through JSON."""

from __future__ import annotations

import json

from memlens.model.lines import Left, LineRow, LineTable, add_children


def table(calls: int, *rows: LineRow, function: str = "f", exact: bool = True) -> LineTable:
    return LineTable("a.py", function, 1, calls, 100, rows, peaks_are_exact=exact, lines_run=10, lines_read=5)


def test_children_of_one_function_are_one_table() -> None:
    """Occurrences and increments are sums, usage and peak the largest; a line that one alone ran is there."""
    one = table(1, LineRow(1, "def f():", 1, 100, 100), LineRow(2, "x = 1", 3, 150, 50, 70))
    two = table(
        2,
        LineRow(1, "def f():", 2, 90, 90),
        LineRow(2, "x = 1", 1, 120, -20, 30),
        LineRow(3, "y", 1, 1, 1, 1),
    )
    (sum_,) = add_children([one, two])
    assert (sum_.calls, sum_.children, sum_.lines_run, sum_.lines_read) == (3, 2, 20, 10)
    assert sum_.rows[1] == LineRow(2, "x = 1", 4, 150, 30, 70)
    assert [row.line for row in sum_.rows] == [1, 2, 3]


def test_other_functions_stay_apart_and_a_lone_child_is_one() -> None:
    """A table for each function; peaks are exact only where they are in all."""
    f, g = add_children([table(1), table(1, function="g"), table(1, exact=False)])
    assert [(t.function, t.children, t.peaks_are_exact) for t in (f, g)] == [("f", 2, False), ("g", 1, True)]


def test_gpu_figures_add_up_as_the_others_do() -> None:
    """What is left on the GPU is listed for each, tensors and increments are summed, peaks are not."""
    left = Left(1, (2, 3), "float32", "activation", 24)
    row = LineRow(2, "x", 1, gpu_increment_bytes=5, gpu_peak_bytes=7, gpu_tensors=1, gpu_left=(left,))
    (found,) = add_children([table(1, row), table(1, row)])
    assert found.rows[0] == LineRow(
        2, "x", 2, gpu_increment_bytes=10, gpu_peak_bytes=7, gpu_tensors=2, gpu_left=(left, left)
    )
    assert LineTable.from_dict(json.loads(json.dumps(found.to_dict()))) == found
