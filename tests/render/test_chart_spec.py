"""The contract of charts between Python and the page's script."""

from __future__ import annotations

import re
import typing
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.support.packed import unpacked

from memlens.render.report import charts

SCRIPT = Path(charts.__file__).with_name("page.js")


def names_read(script: str, name: str) -> set[str]:
    """The keys that a script reads of the object it calls `name`."""
    return set(re.findall(rf"\b{name}\.(\w+)", script))


def keys(kind: Any) -> set[str]:
    return set(typing.get_type_hints(kind))


def test_the_page_reads_the_keys_that_python_writes() -> None:
    """A key that one side lacks would be a part of the chart that is never drawn, without an error."""
    assert names_read(SCRIPT.read_text(), "spec") == keys(charts.Spec)


def test_the_parts_of_a_chart_have_the_keys_that_the_page_reads() -> None:
    """The same for what is inside: curves, phases, marks, rules and rows of calls."""
    script = SCRIPT.read_text()
    assert names_read(script, "area") | names_read(script, "line") == keys(charts.Line)
    assert names_read(script, "band") == keys(charts.Band)
    assert names_read(script, "mark") == keys(charts.Note)
    assert names_read(script, "rule") == keys(charts.Rule)
    assert names_read(script, "call") == keys(charts.Call)
    assert names_read(script, "given") == keys(charts.Holdings)


@given(st.lists(st.integers(-(2**52), 2**52)))
def test_packed_numbers_come_out_as_they_went_in(numbers: list[int]) -> None:
    """Any list, also one of equal steps, which takes two numbers in all."""
    assert unpacked(charts.packed(numbers)) == numbers
    assert len(charts.packed(range(7, 70_000, 3))) <= 4


def test_a_key_that_python_never_writes_is_found() -> None:
    """The check, broken once on purpose."""
    script = SCRIPT.read_text().replace("spec.marks", "spec.remarks")
    assert names_read(script, "spec") ^ keys(charts.Spec) == {"marks", "remarks"}
