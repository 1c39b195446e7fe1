"""Replacing attributes of other people's modules for a while, and putting every one of them back.

An original is written down before its place is changed, and what is put back is struck off afterwards, so
that putting back can be begun again. Signals that come while places change wait until all are changed; then
their handlers run, and an exception of theirs, such as KeyboardInterrupt, finds everything as it was.

One moment is left to the interpreter: a signal handler that raises before the first instruction of
`__exit__`, which no Python code can catch.

>>> import os
>>> with replaced({"os.getpid": lambda: 1, (os, "getppid"): lambda: 0}):
...     os.getpid()
1
"""

from __future__ import annotations

import importlib
import signal
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Place = str | tuple[Any, str]  # "torch.cuda.is_available", or the owner and the name
_ABSENT = object()


class Patches(Generic[T]):
    """What is changed for the length of a `with`; a subclass says in `begin` what to change."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    def begin(self) -> T:
        """Change things by `replace` and `afterwards`; what this returns is what `as` gives."""
        raise NotImplementedError

    def end(self) -> None:
        """Called before anything is put back, where no exception came."""

    def replace(self, place: Place, value: Any) -> None:
        """Put `value` there; the original, or its absence, comes back at the end."""
        owner, name = _find(place) if isinstance(place, str) else place
        before = vars(owner).get(name, _ABSENT)  # a descriptor as it is; nothing where it is inherited
        self.afterwards(lambda: _put(owner, name, before))
        setattr(owner, name, value)

    def replace_all(self, table: Mapping[Any, Any]) -> None:
        places = [
            (_find(place) if isinstance(place, str) else place, value) for place, value in table.items()
        ]
        for place, value in places:
            self.replace(place, value)

    def afterwards(self, undo: Callable[[], object]) -> None:
        """Call `undo` at the end, last one first. Say so before the change; it may be called twice."""
        self._undo.append(undo)

    def _put_back(self) -> None:
        """Everything, even where one thing fails."""
        problem = None
        while self._undo:
            try:
                self._undo[-1]()
            except Exception as error:  # the others are put back all the same
                problem = problem or error
            self._undo.pop()
        if problem is not None:
            raise problem

    def __enter__(self) -> T:
        try:
            return held(self.begin)
        except BaseException:
            held(self._put_back)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            try:
                if kind is None:
                    self.end()
            finally:
                held(self._put_back)
        except BaseException:
            held(self._put_back)  # what an interrupt left over
            raise


class replaced(Patches[None]):
    """`with replaced({"torch.cuda.memory_allocated": f, (Owner, "name"): value}):`."""

    def __init__(self, table: Mapping[Any, Any]) -> None:
        super().__init__()
        self.table = table

    def begin(self) -> None:
        self.replace_all(self.table)


def held(call: Callable[[], T]) -> T:
    """`call()`, while signals wait: their handlers run when it is over.

    Other threads than the main one are never interrupted by a signal.
    """
    if threading.current_thread() is not threading.main_thread():
        return call()
    handlers = [(number, signal.getsignal(number)) for number in signal.valid_signals()]
    for number, handler in handlers:
        if callable(handler):
            call = _Held(number, handler, call)
    return call()


class _Held(Generic[T]):
    """A call during which one signal waits."""

    def __init__(self, number: int, handler: Callable[[int, Any], Any], call: Callable[[], T]) -> None:
        self.number, self.handler, self.inner = number, handler, call
        self.waiting: list[Any] = []

    def __call__(self) -> T:
        try:
            try:
                signal.signal(self.number, self._wait)
                return self.inner()
            finally:
                signal.signal(self.number, self.handler)
        except BaseException:
            signal.signal(self.number, self.handler)
            raise
        finally:
            if self.waiting:
                self.handler(self.number, self.waiting.pop())

    def _wait(self, number: int, frame: Any) -> None:
        self.waiting.append(frame)


def remove(things: list[Any], thing: Any) -> None:
    """From a list, if it is still there."""
    if thing in things:
        things.remove(thing)


def _find(dotted: str) -> tuple[Any, str]:
    """The owner, a module or a class in one, and the name in it."""
    path, _, name = dotted.rpartition(".")
    try:
        return importlib.import_module(path), name
    except ModuleNotFoundError:
        module, _, attribute = path.rpartition(".")
        return getattr(importlib.import_module(module), attribute), name


def _put(owner: Any, name: str, before: Any) -> None:
    if before is not _ABSENT:
        setattr(owner, name, before)
    elif name in vars(owner):
        delattr(owner, name)
