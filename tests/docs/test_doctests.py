"""The examples in docstrings are run, and give what they say."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path
from typing import Any

import pytest
from tests.support.pages import REPOSITORY

SOURCE = REPOSITORY / "src"
WITH_TORCH = {"simulation", "scenarios", "summaries", "advice", "integrations"}


def modules() -> list[Any]:
    found = []
    for path in sorted([*SOURCE.rglob("*.py"), REPOSITORY / "tests" / "support" / "pages.py"]):
        text = path.read_text()
        if ">>>" in text:
            inside = path.is_relative_to(SOURCE)
            name = ".".join(path.relative_to(SOURCE if inside else REPOSITORY).with_suffix("").parts)
            torch = bool(WITH_TORCH & set(name.split("."))) or "torch" in text
            found.append(pytest.param(name, torch, marks=[pytest.mark.torch] if torch else [], id=name))
    return found


@pytest.mark.parametrize(("name", "torch"), modules())
def test_examples_in_docstrings(
    name: str, torch: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every example of a module gives what its docstring shows."""
    if torch:
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    flags = doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS
    result = doctest.testmod(importlib.import_module(name), optionflags=flags)
    assert result.failed == 0
    assert result.attempted > 0
