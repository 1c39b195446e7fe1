"""Processes that a script starts for its ranks: the first of them runs here, in the simulation.

A child of the simulation has no device. So `spawn` calls its function once, as rank 0; `Process` is a
thread, which uses the device as its process would. Of the processes that run the same function the first is
started: the others are its copies on other cards, or as many more on this one.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

from memlens.model.user_code import is_user_file
from memlens.scenarios.shims.registry import Shims, shim


def first_only(shims: Shims, function: Any) -> None:
    """State what is run where processes were to be started."""
    shims.say(
        f"of the processes that run {getattr(function, '__name__', 'a function')}, the first is run, "
        "inside the script's own",
        "each of the others needs as much, on its own card or on this one",
    )


class Context:
    """What `spawn(..., join=False)` returns: all is over."""

    processes: tuple[Any, ...] = ()

    def join(self, *_: Any, **__: Any) -> bool:
        return True

    def pids(self) -> list[int]:
        return []


def spawning(shims: Shims) -> Callable[..., Context]:
    """`spawn` and `start_processes`: rank 0, at once."""

    def spawn(fn: Any, args: Any = (), *_: Any, **__: Any) -> Context:
        first_only(shims, fn)
        fn(0, *args)
        return Context()

    return spawn


class Process(threading.Thread):
    """What is left of the process that would run `target`, or its own `run`."""

    shims: Shims
    started: set[Any]  # functions that a process of this run has

    def __init__(
        self, group: None = None, target: Any = None, name: str | None = None, args: Any = (),
        kwargs: Any = None, *, daemon: bool | None = None,
    ) -> None:  # fmt: skip
        super().__init__(group, target, name, args, kwargs or {}, daemon=True)
        self.runs = target if target is not None else type(self)
        self.problem: BaseException | None = None
        self.is_a_copy = False

    def start(self) -> None:
        first_only(self.shims, self.runs)
        self.is_a_copy = self.runs in self.started
        self.started.add(self.runs)
        if not self.is_a_copy:
            super().start()

    def _bootstrap_inner(self) -> None:
        run = self.run

        def noting() -> None:
            try:
                run()
            except Exception as problem:
                self.problem = problem
            except SystemExit as ended:
                self.problem = ended if ended.code else None

        self.run = noting  # type: ignore[method-assign]
        threading.Thread._bootstrap_inner(self)  # type: ignore[attr-defined]

    def join(self, timeout: float | None = None) -> None:
        """Where a process would leave an exit code, its error is the script's."""
        if not self.is_a_copy:
            super().join(timeout)
        problem, self.problem = self.problem, None
        if problem is not None:
            raise problem

    def is_alive(self) -> bool:
        return not self.is_a_copy and super().is_alive()

    @property
    def exitcode(self) -> int | None:
        return None if self.is_alive() else 0

    @property
    def pid(self) -> int:
        return os.getpid()

    def terminate(self) -> None:
        """It is a daemon: it ends with the script."""

    kill = close = terminate


def process_class(shims: Shims) -> type[Process]:
    """The class of one run."""
    return type("Process", (Process,), {"shims": shims, "started": set()})


class _Started:
    """`get_context(...)`, whose processes are those of the simulation."""

    def __init__(self, real: Any, process: type) -> None:
        self._real, self.Process = real, process

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def processes(shims: Shims, module: ModuleType) -> dict[str, Any]:
    """`Process`, and the contexts that have one. Pools of libraries keep theirs."""
    process, get_context = process_class(shims), module.get_context

    def context(method: Any = None) -> Any:
        real = get_context(method)
        return _Started(real, process) if is_user_file(sys._getframe(1).f_code.co_filename) else real

    return {"Process": process, "get_context": context}


@shim("multiprocessing")
def of_python(shims: Shims, module: ModuleType) -> dict[str, Any]:
    """`multiprocessing.Process`; pools keep their own."""
    return processes(shims, module)


@shim("torch.multiprocessing")
def of_torch(shims: Shims, module: ModuleType) -> dict[str, Any]:
    """`torch.multiprocessing`, which has copies of those names, and `spawn`."""
    spawn = spawning(shims)
    return {**processes(shims, module), "spawn": spawn, "start_processes": spawn}


@shim("accelerate")
def of_accelerate(shims: Shims, module: ModuleType) -> dict[str, Any]:
    """`notebook_launcher` and `debug_launcher`: the function, once."""

    def launch(function: Any, args: Any = (), *_: Any, **__: Any) -> Any:
        first_only(shims, function)
        return function(*args)

    return {"notebook_launcher": launch, "debug_launcher": launch}
