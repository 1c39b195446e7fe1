"""Which module holds memory, as the forward calls in a recording's stacks tell."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from memlens.explanation.growth import growth
from memlens.explanation.modules import forwards, module_of, module_uses
from memlens.model import Alloc, Breakdown, Frame, Site
from memlens.records.torch_snapshot import load_snapshot

CALL = Frame("/x/site-packages/torch/nn/modules/module.py", 1787, "_call_impl")
WRAPPED = Frame("/x/site-packages/torch/nn/modules/module.py", 1776, "_wrapped_call_impl")
NET = """
class Block:
    def __init__(self): ...

    def forward(self, x):
        return self.inner(x)


class Other:
    def forward(self, x):
        return x
"""


def called(*frames: Frame) -> tuple[Frame, ...]:
    """Frames as a stack, innermost first, each forward called by a module as torch does it."""
    found: list[Frame] = []
    for frame in reversed(frames):
        found += [frame, CALL, WRAPPED]
    return (*found, Frame("train.py", 3, "<module>"))


def test_the_path_of_calls() -> None:
    """Files and lines of the calls, outermost first; a file that comes again is named once."""
    net, layers = "project/net.py", "project/layers.py"
    stack = called(Frame(net, 41, "forward"), Frame(net, 80, "forward"), Frame(layers, 9, "forward"))
    assert module_of(Site(frames=stack)) == ("project/net.py:41 > 80 > project/layers.py:forward", True)


def test_a_class_is_named_where_its_source_is(tmp_path: Path) -> None:
    """The class whose forward has the line; a line outside every forward stays a line."""
    file = tmp_path / "net.py"
    file.write_text(NET)
    block, other = (Frame(str(file), line, "forward") for line in (6, 11))
    assert module_of(Site(frames=called(block, other))) == ("Block > Other", True)
    beside = Frame(str(file), 3, "forward")
    assert module_of(Site(frames=called(beside)))[0].endswith("/net.py:forward")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes")
def test_files_that_are_no_source_are_left_alone(tmp_path: Path) -> None:
    """The names come from anybody's file: a pipe, a directory, broken source and a binary are not read."""
    (tmp_path / "folder.py").mkdir()
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "broken.py").write_text("class Block(:\n")
    (tmp_path / "binary.py").write_bytes(bytes(range(256)))
    for name in ("folder.py", "pipe.py", "broken.py", "binary.py", "missing.py"):
        label, inferred = module_of(Site(frames=called(Frame(str(tmp_path / name), 1, "forward"))))
        assert label.endswith(f"/{name}:forward")
        assert inferred


def test_what_is_no_modules_forward() -> None:
    """An autograd function's forward, a hook, and decorators between do not count; C++ frames are passed."""
    stack = (
        Frame("??", 0, "at::_ops::mm::call(at::Tensor const&)"),
        Frame("kernels.py", 5, "forward"),  # an autograd.Function's
        Frame("net.py", 9, "forward"),
        Frame("utils.py", 2, "wrapper"),
        CALL,
        Frame("train.py", 3, "forward"),  # a function that is called so
    )
    assert forwards(stack) == [Frame("net.py", 9, "forward")]
    hook = (Frame("hooks.py", 4, "hook"), CALL, Frame("train.py", 3, "<module>"))
    assert module_of(Site(frames=hook)) == ("?", False)


def test_rows_sum_to_what_is_held() -> None:
    """What the record says, what is inferred and what nobody knows, with what was there before."""
    stack = Site(frames=called(Frame("a/net.py", 4, "forward")))
    held = Breakdown(
        3,
        (Alloc(1, 512, site=Site(module="layers.0")), Alloc(2, 1024, site=stack), Alloc(3, 2048, site=stack)),
        baseline_bytes=100,
    )
    uses = module_uses(held)
    assert [tuple(use) for use in uses] == [
        ("a/net.py:forward", 3072, 2, True),
        ("layers.0", 512, 1, False),
        ("?", 100, 0, False),
    ]
    assert sum(use.bytes for use in uses) == held.allocated_bytes


@pytest.mark.shared
def test_the_modules_of_a_real_recording(shared: Path) -> None:
    """A Transformer's step: its attention (two layers of forwards deep) keeps most, as its stacks tell.

    Half of the peak was there before the recording, or was made by backward in a thread without a stack.
    """
    trace = load_snapshot(shared / "truth" / "snapshots" / "transformer_medium_train_ctx512.pickle")
    held = trace.breakdown()
    uses = module_uses(held)
    assert sum(use.bytes for use in uses) == held.allocated_bytes
    assert [(use.module, round(use.bytes / 2**20, 2)) for use in uses[:3]] == [
        ("?", 5141.42),
        ("cs336_basics/model.py:253 > 382 > forward", 2895.19),
        ("cs336_basics/model.py:253 > 386 > 399 > forward", 1536.0),
    ]
    assert growth(trace) is None  # one step; its loops over layers and parameters are none
