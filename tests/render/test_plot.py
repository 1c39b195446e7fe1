"""Pictures of runs, without a display."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from memlens.errors import MemlensError, UsageError
from memlens.model import Trace
from memlens.render import plot
from memlens.units import MIB

Run = Callable[[], Trace]

matplotlib = pytest.importorskip("matplotlib")
MAGIC = {".png": b"\x89PNG", ".svg": b"<?xml", ".pdf": b"%PDF"}


@pytest.mark.parametrize("ending", MAGIC)
def test_a_picture_in_each_format(run: Run, tmp_path: Path, ending: str) -> None:
    """The format is that of the name's ending."""
    path = tmp_path / f"run{ending}"
    plot.save([("run", run())], path)
    assert path.read_bytes().startswith(MAGIC[ending])


def drawn(*traces: object, **options: object) -> tuple[object, list[str]]:
    """The first axes, and the legend's rows."""
    from matplotlib.figure import Figure

    figure = Figure()
    plot.draw(figure, [(f"run{n}", trace) for n, trace in enumerate(traces)], **options)
    axes = figure.axes[0]
    return axes, [text.get_text() for text in axes.get_legend().get_texts()]


def test_what_the_legend_names(run: Run) -> None:
    """The program, its child and both together with their peaks; each function with its time and calls."""
    axes, rows = drawn(run())
    assert rows == [
        "python train.py (peak 20.00 MiB)",
        "python worker.py 8 (peak 20.00 MiB)",
        "all together (peak 40.00 MiB)",
        "1.00 s in __main__.load",
        "2.00 s in __main__.step, 2 calls",
    ]
    assert axes.get_title(loc="left") == "train.py"


def test_curves_are_in_seconds_and_mib(run: Run) -> None:
    """The program's line goes through its samples and holds the last one until the end."""
    axes, _ = drawn(run())
    xs, ys = axes.lines[0].get_data()
    assert (list(xs), list(ys)) == ([0.0, 2.0, 4.0, 4.0], [10.0, 20.0, 10.0, 10.0])


def test_brackets_stand_at_both_ends_of_a_call(run: Run) -> None:
    """load began at 0 s with 0 MiB and ended at 1 s with 10."""
    axes, _ = drawn(run())
    points = [(line.get_xdata()[0], line.get_ydata()[0]) for line in axes.lines if len(line.get_xdata()) == 1]
    assert {(0.0, 0.0), (1.0, 10.0)} <= set(points)
    _, rows = drawn(run(), functions=False)
    assert not any("load" in row for row in rows)


def test_the_slope_is_that_of_least_squares(run: Run) -> None:
    """Through (0, 10), (2, 20), (4, 10) the line is flat; in the first two seconds it climbs 5 a second."""
    assert "slope +0 MiB/s" in drawn(run(), slope=True)[1]
    assert "slope +5 MiB/s" in drawn(run(), slope=True, seconds=(0, 2))[1]
    with pytest.raises(UsageError, match="a slope needs two samples, there are 1"):
        drawn(run(), slope=True, seconds=(1, 2))


def test_several_runs_in_one_picture(run: Run) -> None:
    """Each has its name in the legend and its own colour."""
    axes, rows = drawn(run(), run(), functions=False)
    assert rows == ["run0", "run1"]
    assert len({line.get_color() for line in axes.lines if line.get_label() in rows}) == 2


def test_functions_as_flames(run: Run) -> None:
    """With flame, calls are bars in axes of their own, at the depth of their nesting."""
    from matplotlib.figure import Figure

    figure = Figure()
    plot.draw(figure, [("run", run())], flame=True)
    bars = figure.axes[1].patches
    assert [(bar.get_x(), bar.get_width()) for bar in bars] == [(0.0, 1.0), (2.0, 1.0), (3.0, 1.0)]


def test_many_children_do_not_cover_the_picture(run: Run) -> None:
    """A legend of hundreds of rows is cut, and says how many are not named."""
    from memlens.model import Process, Sample

    trace = run()
    for pid in range(100, 300):
        trace.processes.append(Process(pid, "w", 7, 1_000_000, 2_000_000))
        trace.events.append(Sample(1_000_000, pid, MIB))
    _, rows = drawn(trace)
    assert (len(rows), rows[-1]) == (15, "… and 191 more")


@pytest.mark.parametrize(
    ("name", "says"), [("x.bmp", "cannot write a picture as 'x.bmp'"), ("no/x.png", "No such file")]
)
def test_a_picture_that_cannot_be_written(run: Run, tmp_path: Path, name: str, says: str) -> None:
    """An unknown ending and a missing directory are errors that say so."""
    with pytest.raises(UsageError, match=says):
        plot.save([("run", run())], tmp_path / name if "/" in name else Path(name))


def test_a_figure_that_is_not_there_is_an_error(run: Run, tmp_path: Path) -> None:
    """An empty picture would look like no memory."""
    with pytest.raises(UsageError, match="holds no GPU memory"):
        plot.save([("run", run())], tmp_path / "x.png", kind="gpu")


@pytest.mark.parametrize(
    ("matplotlib_is", "says"),
    [
        ("absent", "a picture needs matplotlib, which is not installed"),
        ("broken", "matplotlib is installed, but fails: libfoo.so.1: cannot open"),
    ],
)
def test_matplotlib_absent_and_broken_are_told_apart(tmp_path: Path, matplotlib_is: str, says: str) -> None:
    """Without matplotlib the extra is named; a broken one is not called missing."""
    if matplotlib_is == "broken":
        (tmp_path / "matplotlib").mkdir()
        (tmp_path / "matplotlib" / "__init__.py").write_text(
            "raise ImportError('libfoo.so.1: cannot open')\n"
        )
        hide = f"sys.path.insert(0, {str(tmp_path)!r})"
    else:
        hide = "sys.meta_path.insert(0, Hide())"
    code = (
        "import sys\nclass Hide:\n    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'matplotlib': raise ModuleNotFoundError('no matplotlib', name='matplotlib')\n"
        f"{hide}\nfrom pathlib import Path\nfrom memlens.render import plot\n"
        "try: plot.save([], Path('x.png'))\nexcept Exception as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert says in done.stdout


def test_a_window_needs_a_backend_that_matplotlib_has(run: Run) -> None:
    """An unknown backend is one error."""
    with pytest.raises(MemlensError, match="no backend 'nonsense'"):
        plot.show([("run", run())], "nonsense")
