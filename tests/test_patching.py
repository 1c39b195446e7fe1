"""Replacing for a while: what comes back, also where an interrupt falls between two replacements."""

from __future__ import annotations

import builtins
import dis
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch.nn.modules import module as module_hooks  # noqa: E402
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks  # noqa: E402

import memlens  # noqa: E402
from memlens.patching import Patches, replaced  # noqa: E402
from memlens.simulation import context  # noqa: E402

pytestmark = pytest.mark.torch

OWNERS = (torch, torch.cuda, torch.cuda.memory, torch.Tensor, os, subprocess, sys, builtins, threading.Thread)
# CPython looks for signals where a function begins, at calls and at jumps backwards, so never at these
NOTHING = {dis.opmap[name] for name in ("NOP", "RETURN_VALUE")}


HOOKS: tuple[dict[int, Any], ...] = (
    module_hooks._global_forward_pre_hooks,
    module_hooks._global_forward_hooks,
    module_hooks._global_forward_hooks_always_called,
    _global_optimizer_pre_hooks,
    _global_optimizer_post_hooks,
)


class Parent:
    def inherited(self) -> str:
        return "parent"


class Owner(Parent):
    @staticmethod
    def static() -> str:
        return "static"

    @classmethod
    def of_class(cls) -> str:
        return cls.__name__

    @property
    def value(self) -> str:
        return "property"


class Interruption:
    """Raises KeyboardInterrupt at the `at`-th opcode that runs inside memlens; counts them without `at`."""

    def __init__(self, at: int | None = None) -> None:
        self.at, self.seen, self.raised = at, 0, False

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        if f"{os.sep}memlens{os.sep}" not in frame.f_code.co_filename:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and frame.f_code.co_code[frame.f_lasti] not in NOTHING:
            self.seen += 1
            if self.seen - 1 == self.at:
                self.raised = True
                raise KeyboardInterrupt
        return self


def run_interrupted(make: Callable[[], Any], at: int | None = None) -> Interruption:
    """Enter and leave `make()`, with an interrupt at one opcode; the interrupt is not swallowed."""
    interruption = Interruption(at)
    before = sys.gettrace()
    caught = False
    try:
        sys.settrace(interruption)
        with make():
            pass
    except KeyboardInterrupt:
        caught = True
    finally:
        sys.settrace(before)
    assert caught == interruption.raised, f"the interrupt at opcode {at} was swallowed"
    return interruption


def state() -> dict[str, Any]:
    """What torch and Python are now, as far as a simulation touches it."""
    table = {f"{owner!r}.{k}": id(v) for owner in OWNERS for k, v in vars(owner).items()}
    for name in ("gettrace", "path_importer_cache"):
        table.pop(f"{sys!r}.{name}", None)
    return table | {
        "modes": (torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()),
        "meta_path": tuple(map(id, sys.meta_path)),
        "hooks": [len(t) for t in HOOKS],
        "random": (hash(random.getstate()), torch.get_rng_state().sum().item()),
        "autocast": torch._C._dispatch_tls_is_dispatch_key_included(torch._C.DispatchKey.AutocastCUDA),
        "signals": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)],
        "kernels": len(torch.library._impls),
        "simulations": list(context._active),
    }  # fmt: skip


def differing(before: dict[str, Any]) -> set[str]:
    now = state()
    return {key for key in before.keys() | now.keys() if before.get(key) != now.get(key)}


def test_descriptors_inherited_and_absent_names_come_back() -> None:
    """A staticmethod stays one, an inherited name is no own name afterwards, and an absent one is absent."""
    before = dict(vars(Owner))
    names = ("static", "of_class", "value", "inherited", "absent")
    with replaced({(Owner, name): name for name in names}):
        assert [getattr(Owner, name) for name in names] == list(names)
    assert dict(vars(Owner)) == before
    assert (Owner.static(), Owner().inherited(), Owner().value) == ("static", "parent", "property")


def test_dotted_names_reach_into_classes() -> None:
    """A module's function and a class's method, each by its dotted name."""
    with replaced({"os.getpid": lambda: 1, "threading.Thread.start": None}):
        assert (os.getpid(), threading.Thread.start) == (1, None)
    assert os.getpid() != 1
    assert callable(threading.Thread.start)


def test_everything_comes_back_where_one_undoing_fails() -> None:
    """The error is raised, after the rest is as it was."""

    class Failing(Patches[None]):
        def begin(self) -> None:
            self.replace("os.getpid", lambda: 1)
            self.afterwards(lambda: 1 // 0)

    with pytest.raises(ZeroDivisionError), Failing():
        assert os.getpid() == 1
    assert os.getpid() != 1


def test_a_replacing_that_fails_half_way_leaves_nothing() -> None:
    """The second owner refuses; the first is as before."""
    with pytest.raises(TypeError), replaced({"os.getpid": lambda: 1, (int, "real"): 2}):
        pass
    assert os.getpid() != 1


def test_a_signal_waits_until_all_is_replaced() -> None:
    """Its handler runs then, and what it raises finds every original back in its place."""

    class Signalled(Patches[None]):
        def begin(self) -> None:
            self.replace("os.getppid", lambda: 1)
            signal.raise_signal(signal.SIGINT)
            ran.append(os.getppid())

    ran: list[int] = []
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a debugger may have left its own
    try:
        with pytest.raises(KeyboardInterrupt), Signalled():
            pytest.fail("the block was entered")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    assert ran == [1]
    assert os.getppid() != 1


def interrupt_at(make: Callable[[], Any], points: int) -> int:
    """An interrupt at so many random opcodes of entering and leaving, one at a time; how many there are."""
    run_interrupted(make)
    before = state()
    count = run_interrupted(make).seen
    for at in random.Random(1).sample(range(count), min(points, count)):
        run_interrupted(make, at)
        assert differing(before) == set(), f"opcode {at} of {count}"
    return count


def test_an_interrupt_at_many_opcodes_of_replaced() -> None:
    """Whatever the opcode, all places are as before and the interrupt goes on."""
    table = {"os.getpid": None, "torch.cuda.is_available": None, (torch.Tensor, "data"): 1, (os, "no"): 2}
    assert interrupt_at(lambda: replaced(table), 300) > 1000


def test_an_interrupt_at_many_opcodes_of_simulate() -> None:
    """Torch, the modes, hooks, kernels, random states and signal handlers are as before."""
    assert interrupt_at(lambda: memlens.simulate(gpu="T4"), 60) > 5000
