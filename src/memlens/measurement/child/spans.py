"""Spans inside a Python program under `memlens run`: the calls of decorated functions, blocks with a name.

Loaded by bootstrap.py into the program's interpreter, which need not have memlens: standard library only
at import.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any

_channel: Any = sys.modules["_memlens_channel"]  # loaded by bootstrap.py before this file
_level: ContextVar[int] = ContextVar("memlens_level", default=0)
# of code.co_flags; `inspect` has names for them and takes 8 ms to import
_GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x200


def rss_reader() -> Callable[[], int | None]:
    """Own RSS in bytes: /proc where there is one, else psutil; None where neither is."""
    if not os.path.exists("/proc/self/statm"):
        return _portable_rss()
    page = os.sysconf("SC_PAGE_SIZE")

    def read() -> int | None:
        # opened each time (5 us): the program may close every descriptor, and get our number for a file
        try:
            descriptor = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None  # the program has as many files open as it may
        try:
            return int(os.read(descriptor, 64).split()[1]) * page
        finally:
            os.close(descriptor)

    return read


def _portable_rss() -> Callable[[], int | None]:
    try:
        import psutil
    except ImportError:
        return lambda: None
    return lambda: int(psutil.Process().memory_info().rss)


_rss: Callable[[], int | None] | None = None


@contextmanager
def span(name: str) -> Iterator[None]:
    """Put what happens inside on the timeline, with memory at both ends."""
    global _rss
    read = _rss = _rss or rss_reader()
    level = _level.get()
    _level.set(level + 1)
    started, before = time.time_ns() // 1000, read()
    try:
        yield
    finally:
        _level.set(level)  # not `reset`: a generator may end in another context than it began in
        ended = time.time_ns() // 1000
        sizes = {"start_bytes": before, "end_bytes": read()}
        _channel.say("span", name=name, started_us=started, ended_us=ended, level=level, **sizes)


add_function: Callable[[Any], None] | None = None  # set when lines are measured


def timed(function: Any) -> Any:
    """A function whose calls are spans, of the same kind and signature; a class is left as it is.

    Where lines are measured the function is only noted for that, and stays the object that it is.
    """
    if add_function is not None:
        add_function(function)
        return function
    if isinstance(function, (classmethod, staticmethod)):
        return type(function)(timed(function.__func__))
    if isinstance(function, type) or not callable(function):
        return function
    name = f"{function.__module__}.{getattr(function, '__qualname__', type(function).__name__)}"
    return wraps(function)(_wrapper(function, lambda: span(name)))


def _wrapper(function: Any, span: Callable[[], Any]) -> Any:
    """A function of the same kind as `function` that spends its life in a span."""
    flags = getattr(getattr(function, "__code__", None), "co_flags", 0)
    if flags & _COROUTINE:

        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            with span():
                return await function(*args, **kwargs)

        return coroutine
    if flags & _GENERATOR:

        def generator(*args: Any, **kwargs: Any) -> Any:
            with span():
                return (yield from function(*args, **kwargs))

        return generator
    if flags & _ASYNC_GENERATOR:

        async def asyncgenerator(*args: Any, **kwargs: Any) -> Any:
            with span():
                async for item in function(*args, **kwargs):
                    yield item

        return asyncgenerator

    def plain(*args: Any, **kwargs: Any) -> Any:
        with span():
            return function(*args, **kwargs)

    return plain
