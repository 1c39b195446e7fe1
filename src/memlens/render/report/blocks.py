"""What a page is made of, before it is HTML: plain text and numbers, nothing escaped, nothing drawn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, TypeAlias

from memlens.render.report.charts import Spec
from memlens.units import format_count, format_mib, short_path


@dataclass(frozen=True, slots=True)
class Cell:
    """`sort` is what its column sorts by, `share` (0 to 1) a bar behind the text, `tip` the full text."""

    text: str
    sort: float | None = None
    share: float | None = None
    tip: str = ""
    colour: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """Titles of columns that hold numbers begin with `#`."""

    kind: ClassVar[str] = "table"
    title: str
    columns: tuple[str, ...]
    rows: Sequence[tuple[Cell, ...]]
    note: str = ""
    wide: bool = False
    code: bool = False  # the last column is source code


@dataclass(frozen=True, slots=True)
class Chart:
    """A curve over time as `page.js` draws it; bytes are whole numbers in `spec`."""

    kind: ClassVar[str] = "chart"
    title: str
    spec: Spec
    note: str = ""
    wide: bool = True


@dataclass(frozen=True, slots=True)
class Strip:
    """All of a memory, laid out by address in equal rows; a piece is (start, width, colour) in percent."""

    kind: ClassVar[str] = "strip"
    title: str
    rows: Sequence[Sequence[tuple[float, float, str]]]
    legend: Sequence[tuple[str, str]]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Prose:
    """A paragraph; `tone` is good, warn, bad or nothing."""

    kind: ClassVar[str] = "prose"
    text: str
    tone: str = ""


Block: TypeAlias = Table | Chart | Strip | Prose


@dataclass(frozen=True, slots=True)
class Section:
    key: str
    title: str
    blocks: Sequence[Block]
    lead: str = ""


@dataclass(frozen=True, slots=True)
class Fact:
    """One figure of the headline."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Head:
    """The answer: a sentence, its tone, and the figures under it."""

    kind: str
    headline: str
    tone: str = ""
    said: Sequence[str] = ()
    facts: Sequence[Fact] = ()


@dataclass(frozen=True, slots=True)
class Page:
    title: str
    head: Head
    sections: Sequence[Section] = field(default_factory=list)


def mib(size: int, longest: int | None = None, colour: str = "") -> Cell:
    """A size in a column titled MiB, with a bar; that of `longest` fills the cell."""
    share = size / longest if longest else None
    return Cell(format_mib(size).removesuffix(" MiB"), size, share, colour=colour)


def count(number: int) -> Cell:
    return Cell(format_count(number), number)


def words(text: str, tip: str = "", colour: str = "") -> Cell:
    return Cell(text, tip=tip if tip != text else "", colour=colour)


def ranked_table(
    title: str, first: str, sums: Iterable[tuple[str, int, int]], top: int, empty: str = "", note: str = ""
) -> Table:
    """Who holds how much, the largest first: (name, bytes, allocations). Others are one row: sums close."""
    rows = sorted(sums, key=lambda row: -row[1])
    whole = sum(size for _, size, _ in rows)
    shown = [(place(name or empty), size, number) for name, size, number in rows[:top]]
    if rest := rows[top:]:
        more = f"{format_count(len(rest))} more"
        shown.append((words(more), sum(row[1] for row in rest), sum(row[2] for row in rest)))
    longest = max((size for _, size, _ in shown), default=0)
    cells = [(name, mib(size, longest), percent(size, whole), count(n)) for name, size, n in shown]
    return Table(title, (first, "#MiB", "#share", "#allocations"), cells, note)


def percent(part: int, whole: int) -> Cell:
    return Cell(f"{part / whole:.1%}" if whole else "", part)


def place(text: str) -> Cell:
    """A name or `file.py:12`; of a long path the last three parts, the whole as its tip."""
    return words(short_path(text, from_here=False), tip=text)
