"""Who holds a tensor after its cell ended, in a real IPython shell."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("IPython")
pytest.importorskip("torch")


import memlens

pytestmark = pytest.mark.torch

FAILING = """
def step():
    batch = torch.ones(7)
    raise RuntimeError("out of memory")
step()
"""


LAST = ("last_type", "last_value", "last_traceback", "last_exc")


@pytest.fixture
def main(shell: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The shell, with its names as the program's, as a notebook's kernel has them."""
    monkeypatch.setitem(sys.modules, "__main__", shell.user_module)
    before = {name: getattr(sys, name) for name in LAST if hasattr(sys, name)}
    shell.run_cell("import torch").raise_error()
    yield shell
    for name in LAST:
        sys.__dict__.pop(name, None)
    sys.__dict__.update(before)


def test_what_a_cell_showed(main: Any) -> None:
    """A result without a name stays in `Out` and `_`, and nothing of the shell's own is told."""
    main.run_cell("torch.ones(5)", store_history=True).raise_error()
    found = memlens.who_holds(main.user_ns["Out"][max(main.user_ns["Out"])])
    names = {holder.expression: holder.kind for holder in found.holders}
    number = max(main.user_ns["Out"])
    assert names[f"Out[{number}]"] == names["_"] == names[f"_{number}"] == "notebook output"
    assert not any("shell" in name.lower() or "_oh" in name for name in names)


def test_what_a_failed_cell_keeps(main: Any) -> None:
    """The last error's traceback keeps the function's variables until another comes (pytorch#27600)."""
    main.run_cell(FAILING)
    frame = sys.last_traceback
    while frame.tb_next is not None:
        frame = frame.tb_next
    found = memlens.who_holds(frame.tb_frame.f_locals["batch"])
    told = [holder.expression for holder in found.through("traceback") if holder.where == "sys"]
    assert "last_value.__traceback__<batch in step:3>" in told
    assert any(str(holder).startswith("last_traceback<batch in step:3>") for holder in found.holders)
