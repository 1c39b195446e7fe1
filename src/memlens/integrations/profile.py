"""The `profile` decorator: prints a table of lines after each call.

It keeps what it decorates: the signature, `__wrapped__`, coroutine- and generator-ness, and the name under
which pickle finds it.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, overload

from memlens.errors import UsageError
from memlens.measurement.host.meters import backend_name
from memlens.measurement.lines.profiler import CallProfile, code_of, is_profiled_here
from memlens.messages import Writable
from memlens.render import lines as render

# What can be decorated, and comes back as what it was: a ParamSpec would make a function of a class.
F = TypeVar(
    "F",
    bound="Callable[..., Any] | classmethod[Any, Any, Any] | staticmethod[Any, Any] | property"
    " | functools.cached_property[Any] | functools.partialmethod[Any]",
)


class Options:
    """What `profile(...)` was given."""

    def __init__(
        self,
        stream: Writable | None,
        precision: int,
        backend: str | None,
        python_level: bool,
        classic: bool,
        gpu: bool | int,
        include_children: bool,
    ) -> None:
        if not isinstance(precision, int) or precision < 0:
            raise UsageError(
                f"profile(precision={precision!r}) asks for a number of decimals",
                hint="give 0 or more, such as precision=3",
            )
        if stream is not None and not callable(getattr(stream, "write", None)):
            raise UsageError(
                f"profile(stream={stream!r}) cannot be written to",
                hint='give an open text file: stream=open("lines.txt", "w")',
            )
        backend_name(backend)
        self.stream, self.precision, self.backend = stream, precision, backend
        self.python_level, self.classic, self.gpu = python_level, classic, gpu
        self.include_children = include_children

    @contextmanager
    def call(self, code: types.CodeType) -> Iterator[CallProfile]:
        """A profile of one call, printed when it ends, also by an exception."""
        profile = CallProfile(code, self.backend, self.python_level, self.gpu, self.include_children)
        try:
            yield profile
        finally:
            profile.close()
            if (table := profile.table()) is not None:
                shown = render.text(table, precision=self.precision, classic=self.classic)
                (self.stream or sys.stdout).write(shown + "\n")


@overload
def profile(func: F) -> F: ...
@overload
def profile(
    func: None = None,
    stream: Writable | None = None,
    precision: int = 1,
    backend: str | None = None,
    *,
    python_level: bool = False,
    classic: bool = False,
    gpu: bool | int = False,
    include_children: bool = False,
) -> Callable[[F], F]: ...
def profile(
    func: Any = None,
    stream: Writable | None = None,
    precision: int = 1,
    backend: str | None = None,
    *,
    python_level: bool = False,
    classic: bool = False,
    gpu: bool | int = False,
    include_children: bool = False,
) -> Any:
    """Measure a function line by line and print the table after each call, to `stream` or standard output.

    Works on functions, methods, classmethods, staticmethods, properties, partials, coroutines, generators
    and asynchronous generators (whose table comes when they are exhausted or closed); a class has every
    method decorated that is written in it. `precision` is the number of decimals; `backend` is rss (the
    default), pss, uss or tracemalloc; `python_level` adds columns of what Python's own allocators handed
    out; `classic` prints memory_profiler's columns and no other; `gpu` adds what each line did to a CUDA
    device (True for the current one, or its number), real or simulated: bytes in use, added, at the line's
    own peak, reserved, and how many tensors it left behind; `include_children` adds what the process's
    descendants hold.

        @profile
        def load(path): ...
    """
    options = Options(stream, precision, backend, python_level, classic, gpu, include_children)
    if func is None:
        return functools.partial(decorate, options)
    return decorate(options, func)


def decorate(options: Options, func: Any) -> Any:
    """`func` profiled, whatever kind of thing it is."""
    if isinstance(func, type):
        return decorate_class(options, func)
    if isinstance(func, classmethod | staticmethod):
        return type(func)(decorate(options, func.__func__))
    if isinstance(func, property):
        get, put, drop = (f and decorate(options, f) for f in (func.fget, func.fset, func.fdel))
        return property(get, put, drop, func.__doc__)
    if isinstance(func, functools.cached_property):
        func.func = decorate(options, func.func)
        return func
    if isinstance(func, functools.partialmethod):
        return functools.partialmethod(decorate(options, func.func), *func.args, **func.keywords)
    code = code_of(func)
    for is_kind, wrapper in (
        (inspect.iscoroutinefunction, coroutine_wrapper),
        (inspect.isasyncgenfunction, async_generator_wrapper),
        (inspect.isgeneratorfunction, generator_wrapper),
    ):
        if is_kind(func):
            return functools.wraps(func)(wrapper(options, func, code))
    return functools.wraps(func)(function_wrapper(options, func, code))


def decorate_class(options: Options, cls: type) -> type:
    """Every method written in the class itself; inherited ones belong to the base."""
    kinds = (types.FunctionType, classmethod, staticmethod, property, functools.cached_property)
    for name, member in list(vars(cls).items()):
        if isinstance(member, kinds):
            setattr(cls, name, decorate(options, member))
    return cls


def function_wrapper(options: Options, func: Callable[..., Any], code: types.CodeType) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_profiled_here(code):  # a recursive call belongs to the table of the outermost
            return func(*args, **kwargs)
        with options.call(code) as profile:
            return profile.step(func, *args, **kwargs)

    return call


def generator_wrapper(options: Options, func: Callable[..., Any], code: types.CodeType) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        inner = func(*args, **kwargs)
        if is_profiled_here(code):
            return (yield from inner)
        with options.call(code) as profile:
            return (yield from drive(profile, inner))

    return call


def coroutine_wrapper(
    options: Options, func: Callable[..., Coroutine[Any, Any, Any]], code: types.CodeType
) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> Any:
        inner = func(*args, **kwargs)
        if is_profiled_here(code):
            return await inner
        with options.call(code) as profile:
            return await awaitable(drive(profile, inner))

    return call


def async_generator_wrapper(
    options: Options, func: Callable[..., AsyncGenerator[Any, Any]], code: types.CodeType
) -> Callable[..., Any]:
    async def call(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        inner = func(*args, **kwargs)
        with options.call(code) as profile:
            step = inner.asend(None)
            while True:
                try:
                    value = await awaitable(drive(profile, step))
                except StopAsyncIteration:
                    return
                try:
                    sent = yield value
                except GeneratorExit:
                    await awaitable(drive(profile, inner.aclose()))
                    raise
                except BaseException as error:
                    step = inner.athrow(error)
                else:
                    step = inner.asend(sent)

    return call


def drive(profile: CallProfile, inner: Any) -> Generator[Any, Any, Any]:
    """`yield from inner`, with each of its steps measured and the time between them not."""
    resume, sent = inner.send, None
    while True:
        try:
            value = profile.step(resume, sent)
        except StopIteration as stop:
            return stop.value
        try:
            sent = yield value
            resume = inner.send
        except GeneratorExit:
            profile.step(inner.close)
            raise
        except BaseException as error:
            resume, sent = inner.throw, error


@types.coroutine
def awaitable(steps: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """Lets a coroutine await a generator of steps."""
    return (yield from steps)
