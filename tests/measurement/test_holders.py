"""Who keeps a tensor alive: every kind of name that people forget."""

from __future__ import annotations

import collections
import sys
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from memlens import who_holds
from memlens.errors import UsageError
from memlens.model.holders import Holders, ReferenceHolder

pytestmark = pytest.mark.torch
HISTORY: list[Any] = []


@pytest.fixture(autouse=True)
def empty_history():
    """The module's list is as it was, after each test."""
    yield
    HISTORY.clear()


def chain(found: Holders, start: str) -> ReferenceHolder:
    """The one holder whose expression begins so."""
    (holder,) = [holder for holder in found.holders if holder.expression.startswith(start)]
    return holder


def test_a_local_variable_with_its_function_and_line() -> None:
    """The caller's own variable comes first, with the line that asked."""
    mine = torch.ones(3)
    line = sys._getframe().f_lineno + 1
    found = who_holds(mine)
    assert str(found.holders[0]) == (
        f"mine, local variable of test_a_local_variable_with_its_function_and_line, test_holders.py:{line}"
    )
    assert not found.cut


def test_a_module_attribute_by_its_path() -> None:
    """A weight is held by its module: the path reads as code does."""
    net = nn.Sequential(nn.Linear(2, 2), nn.ModuleDict({"head": nn.Linear(2, 2)}))
    holder = chain(who_holds(net[1]["head"].weight), "net")
    assert holder.expression == "net[1].head.weight"
    assert holder.through == ("module", "module", "module")


def test_lists_dicts_and_objects() -> None:
    """Containers in containers are followed to the global variable at their end."""

    class Cache:
        def __init__(self) -> None:
            self.items = collections.deque()

    cache = Cache()
    HISTORY.append({"batch": [0, cache]})
    cache.items.append(torch.ones(3))
    found = who_holds(cache.items[0])
    assert chain(found, "HISTORY").expression == "HISTORY[0]['batch'][1].items[0]"
    assert chain(found, "HISTORY").kind == "global variable"
    assert chain(found, "cache").expression == "cache.items[0]"


def test_a_closure() -> None:
    """A callback that still sees a variable of the function that made it."""

    def make():
        batch = torch.ones(3)
        return lambda: batch

    callback = make()
    holder = chain(who_holds(callback()), "callback")
    assert holder.expression.startswith("callback<closure batch of ")
    assert holder.through == ("closure",)


def test_the_graph_of_a_loss_that_was_kept() -> None:
    """`losses.append(loss)` keeps the graph: list, index, and the node that saved the tensor are named."""
    x = torch.ones(4, requires_grad=True)
    hidden = x.exp()
    HISTORY.append(hidden.sin().sum())
    holder = chain(who_holds(hidden), "HISTORY[0]")
    assert holder.graph in ("saved by SinBackward0, 1 nodes behind", "saved by ExpBackward0, 2 nodes behind")
    assert "its autograd graph holds it" in str(holder)
    HISTORY[0].backward()
    assert not [held for held in who_holds(hidden).holders if held.expression.startswith("HISTORY")]


def fail() -> None:
    batch = torch.ones(100)
    raise RuntimeError(f"no memory for {tuple(batch.shape)}")


def test_the_traceback_of_a_caught_error() -> None:
    """An error that is kept keeps its traceback, whose frames keep their variables (pytorch#27600)."""
    try:
        fail()
    except RuntimeError as error:
        kept = error
    batch = kept.__traceback__.tb_next.tb_frame.f_locals["batch"]
    holder = chain(who_holds(batch), "kept")
    assert holder.expression.startswith("kept.__traceback__<batch in fail:")
    assert holder.through == ("traceback",)


def test_an_error_being_handled_without_a_name() -> None:
    """Retrying inside `except:` happens while the first attempt's tensors are alive."""
    try:
        fail()
    except RuntimeError:
        batch = sys.exc_info()[1].__traceback__.tb_next.tb_frame.f_locals["batch"]
        found = who_holds(batch)
    assert [held.kind for held in found.through("traceback")] == ["exception being handled"]


def test_a_generator_that_waits() -> None:
    """A suspended generator keeps its variables."""

    def batches():
        batch = torch.ones(3)
        yield batch
        yield batch

    running = batches()
    holder = chain(who_holds(next(running)), "running")
    assert holder.through == ("generator",)
    assert "<batch in " in holder.expression


def test_a_notebooks_output(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a cell showed stays in `Out`, and in `_5`, until it is deleted there."""
    main = sys.modules["__main__"]
    shown = torch.ones(3)
    monkeypatch.setattr(main, "Out", {5: shown}, raising=False)
    monkeypatch.setattr(main, "_5", shown, raising=False)
    outputs = [held.expression for held in who_holds(shown).holders if held.kind == "notebook output"]
    assert sorted(outputs) == ["Out[5]", "_5"]


def test_a_view_keeps_the_whole() -> None:
    """The first row, kept, keeps the storage of the whole matrix alive."""
    whole = torch.ones(100, 100)
    HISTORY.append(whole[0])
    holder = chain(who_holds(whole), "HISTORY[0]")
    assert holder.view
    assert str(holder).endswith("a tensor with the same storage")


def test_a_gradient_is_held_by_its_parameter() -> None:
    """Nobody holds a gradient but the parameter whose it is."""
    weight = nn.Parameter(torch.ones(3))
    weight.sum().backward()
    holder = chain(who_holds(weight.grad), "weight")
    assert holder.expression == "weight.grad"


def test_an_object_that_refuses_to_be_looked_at() -> None:
    """A holder whose attributes raise is passed over; the others are found."""

    class Closed:
        __slots__ = ("_kept",)

        def __init__(self, kept: torch.Tensor) -> None:
            object.__setattr__(self, "_kept", kept)

        def __getattribute__(self, name: str) -> object:
            raise PermissionError(name)

    mine = torch.ones(3)
    closed = Closed(mine)
    assert [held.expression for held in who_holds(mine).holders] == ["mine"]
    del closed


def test_asking_holds_nothing() -> None:
    """After the question the tensor dies with its last name."""
    import weakref

    mine = torch.ones(3)
    kept = [mine]
    gone = weakref.ref(mine.untyped_storage())
    who_holds(mine)
    del mine, kept
    assert gone() is None


def test_what_is_no_tensor() -> None:
    """A number is refused with its type."""
    with pytest.raises(UsageError, match="got int"):
        who_holds(3)
