"""A notebook's cells: numbered as Jupyter numbers them, and read as IPython reads them, line for line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("nbformat")
pytest.importorskip("IPython")

from IPython.core.inputtransformer2 import TransformerManager
from tests.support.notebooks import write_notebook

from memlens.errors import MissingExtra, UsageError
from memlens.measurement.notebooks import cells
from memlens.measurement.notebooks.cells import read_cells
from memlens.measurement.notebooks.python_source import as_python


def test_cells_have_the_numbers_that_jupyter_shows(tmp_path: Path) -> None:
    """Text and empty cells have none. Code knows its cell by the name of its file."""
    path = write_notebook(tmp_path / "a.ipynb", "x = 1", "", "  \n", "y = 2")
    assert [(cell.number, cell.source) for cell in read_cells(path)] == [(1, "x = 1"), (2, "y = 2")]
    assert read_cells(path)[1].file == f"{path}, cell 2"


@pytest.mark.parametrize(
    ("which", "numbers"),
    [("", [1, 2, 3, 4, 5]), ("2", [2]), ("1,3-4", [1, 3, 4]), ("4-", [4, 5]), ("-2", [1, 2])],
)
def test_cells_are_chosen_by_number(tmp_path: Path, which: str, numbers: list[int]) -> None:
    """Single ones, ranges, and ranges that are open at one end."""
    path = write_notebook(tmp_path / "a.ipynb", *"abcde")
    assert [cell.number for cell in read_cells(path, which)] == numbers


@pytest.mark.parametrize("which", ["0", "6", "2-9", "3-2", "x", "1,,2"])
def test_cells_that_are_not_there_are_refused(tmp_path: Path, which: str) -> None:
    """The error says what was typed and which there are."""
    path = write_notebook(tmp_path / "a.ipynb", *"abcde")
    with pytest.raises(UsageError, match=rf"--cells {which}: .* which has 1 to 5"):
        read_cells(path, which)


def test_what_is_no_notebook_is_refused(tmp_path: Path) -> None:
    """Not there, not JSON, no notebook, another language, nothing in it: one sentence each."""
    (tmp_path / "text.ipynb").write_text("import torch")
    (tmp_path / "json.ipynb").write_text('{"a": 1}')
    write_notebook(tmp_path / "julia.ipynb", "x = 1", language="julia")
    write_notebook(tmp_path / "empty.ipynb", "")
    for name, says in {
        "absent": "there is no notebook",
        "text": "cannot be read as a notebook",
        "json": "cannot be read as a notebook",
        "julia": "is a notebook of julia",
        "empty": "has no cell with code",
    }.items():
        with pytest.raises(UsageError, match=says):
            read_cells(str(tmp_path / f"{name}.ipynb"))


def test_a_library_that_is_missing_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """One error with the line for pip."""
    monkeypatch.setattr(cells, "find_spec", lambda name: None if name == "nbformat" else sys)
    with pytest.raises(MissingExtra) as caught:
        read_cells("train.ipynb")
    assert caught.value.message == "train.ipynb needs nbformat, which is not installed"
    assert caught.value.hint == "pip install 'memlens[notebook]'"


@pytest.mark.parametrize(
    ("source", "line", "says"),
    [
        ("x = 1\ny = 2", 2, "y = 2"),
        ("\n\nx = 1\ny = 2", 4, "y = 2"),
        ("%%time\nx = 1", 2, "x = 1"),
        ("\n%%time\n%%capture out\nx = 1", 4, "x = 1"),
        ("%%capture out\nx = 1", 1, "out = "),
        ("!pip install \\\n  one \\\n  two\nx = 1", 4, "x = 1"),
        ("!pip install one\n%matplotlib inline\nx = 1", 3, "x = 1"),
        ("files = !ls\nx = 1", 1, "getoutput('ls')"),
        ("%%bash\nls\npwd", 1, "run_cell_magic('bash'"),
        ("if True:\n    %time f()\nx = 1", 2, "    get_ipython().run_line_magic('time', 'f()')"),
        ('text = """\n!no command \\\n"""\nx = 1', 2, "!no command"),
    ],
)
def test_a_line_keeps_its_number(source: str, line: int, says: str) -> None:
    """Magics become calls where they stand; what times a cell is taken away from it."""
    python = as_python(TransformerManager(), source).splitlines()
    assert says in python[line - 1]
