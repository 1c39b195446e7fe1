"""What every answer can do, whoever gives it: be printed, shown in a notebook, made a file or a table.

How an answer looks is the business of `memlens.render`, which is above those who give answers: it is loaded
when one is looked at.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

LONGEST_LINE = 400  # characters of a repr


class Answer:
    """A result that people hold in the hand.

    `repr()` is one line, `print()` what the command line prints. As the last line of a notebook's cell it is
    the same with its chart.
    """

    __slots__ = ()

    def headline(self) -> str:
        """The answer in one line."""
        raise NotImplementedError

    def to_rows(self) -> list[dict[str, Any]]:
        """The answer as rows of a table."""
        raise NotImplementedError

    def show(self) -> None:
        """Print it as wide as the terminal, in colour; in a notebook, display it."""
        _render().show(self)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Its chart: a matplotlib figure, written to `path` (.png, .svg, .pdf) if one is given.

        Raises MissingExtra without matplotlib, UsageError for an answer that has no course to draw.
        """
        return _render().plot(self, path)

    def report(self, path: str | os.PathLike[str]) -> None:
        """Write it as one HTML page that opens offline; an existing file is replaced."""
        _render().report(self, path)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it in the format of the ending: .json, .txt, .html, .csv, .memlens (every event) or .pickle.

        An existing file is replaced. Raises UsageError for an ending that this answer cannot have.
        """
        _render().save(self, path)

    def to_pandas(self) -> Any:
        """`to_rows()` as a pandas DataFrame."""
        return _render().to_pandas(self)

    def __repr__(self) -> str:
        text = f"<{type(self).__name__}: {' '.join(self.headline().split())}>"
        return text if len(text) <= LONGEST_LINE else f"{text[: LONGEST_LINE - 4]} ...>"

    def __str__(self) -> str:
        text: str = _render().to_text(self)
        return text

    def __rich__(self) -> Any:
        return _render().page(self)

    def _repr_html_(self) -> str:
        html: str = _render().to_html(self)
        return html


def _render() -> Any:
    return import_module("memlens.render.answers")
