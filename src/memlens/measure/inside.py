"""What `memlens run` does inside a Python program: function times, Python-level memory, top lines.

Loaded by bootstrap.py into the program's interpreter, which need not have memlens: standard library only
at import.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from types import CodeType, FrameType
from typing import Any

_channel: Any = sys.modules["_memlens_channel"]  # loaded by bootstrap.py before this file
_level: ContextVar[int] = ContextVar("memlens_level", default=0)
TOP_LINES = 10
# of code.co_flags; `inspect` has names for them and takes 8 ms to import
_GENERATOR, _COROUTINE, _ASYNC_GENERATOR = 0x20, 0x80, 0x200
SAY_SECONDS = 0.5  # how often the live view's top lines are told
TABLES_SECONDS = 2.0  # how often line tables are told: what a killed program loses at most


def _rss_reader() -> Callable[[], int | None]:
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
    read = _rss = _rss or _rss_reader()
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


def begin(options: dict[str, str], code: CodeType) -> Callable[[], None]:
    """Put in place what `options` asks for; the function to call when the program (`code`) has ended."""
    finishers = [start(options, code) for option, start in _STARTS.items() if option in options]
    owner = os.getpid()

    def finish() -> None:
        if os.getpid() == owner:  # a fork of the program that came to its end is not the program's end
            for stop in reversed(finishers):
                stop()

    return finish


def _repeat(action: Callable[[], None], seconds: float) -> Callable[[], None]:
    """Call `action` every so often in a thread, and once more at the end."""
    over = threading.Event()

    def loop() -> None:
        while not over.wait(seconds):
            action()

    thread = threading.Thread(target=loop, name="memlens", daemon=True)
    thread.start()

    def stop() -> None:
        over.set()
        thread.join(1)
        action()

    return stop


def _start_python_level(options: dict[str, str], code: CodeType) -> Callable[[], None]:
    """Tell how much Python's own allocators hold, as tracemalloc counts it, and the peak at the end."""
    import tracemalloc

    tracemalloc.start(1)

    def tell() -> None:
        if tracemalloc.is_tracing():
            held, peak = tracemalloc.get_traced_memory()
            _channel.say("python", bytes=held, peak_bytes=peak)

    return _repeat(tell, float(options["interval"]))


class TopLines:
    """Which lines the main thread was at while memory grew: sampled, cheap, and so never exact."""

    def __init__(self) -> None:
        self._rss = _rss_reader()
        self._main = threading.main_thread().ident
        self._last = self._rss() or 0
        self._said = 0.0
        self.grown: dict[str, int] = {}

    def look(self) -> None:
        now = self._rss() or 0
        growth, self._last = now - self._last, now
        frame = sys._current_frames().get(self._main or 0)
        if growth > 0 and (where := _user_line(frame)):
            self.grown[where] = self.grown.get(where, 0) + growth
        if time.monotonic() - self._said > SAY_SECONDS:
            self._said = time.monotonic()
            self.tell()

    def tell(self) -> None:
        top = sorted(self.grown.items(), key=lambda item: -item[1])[:TOP_LINES]
        _channel.say("top", lines=top)


def _user_line(frame: FrameType | None) -> str:
    """`file.py:12` of the innermost frame outside Python's own library and installed packages."""
    first = frame
    while frame is not None:
        file = frame.f_code.co_filename
        if "site-packages" not in file and not file.startswith((sys.prefix, sys.base_prefix, "<frozen")):
            return f"{os.path.basename(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return f"{os.path.basename(first.f_code.co_filename)}:{first.f_lineno}" if first else ""


def _start_top_lines(options: dict[str, str], code: CodeType) -> Callable[[], None]:
    top = TopLines()
    stop = _repeat(top.look, min(float(options["interval"]), 0.02))

    def finish() -> None:
        stop()
        top.tell()

    return finish


def tracker(options: dict[str, str]) -> Any:
    """memray's recorder of every allocation, native code's included; Python's small ones if asked for."""
    try:
        import memray
    except ImportError:
        sys.exit("memlens: --exact needs memray in the program's Python: pip install 'memlens[exact]'")
    return memray.Tracker(options["exact"], trace_python_allocators="every_object" in options)


def _start_lines(options: dict[str, str], code: CodeType) -> Callable[[], None]:
    """Measure line by line: what `@profile` names, or the program's whole file if it names nothing."""
    sys.path.append(options["lines"])  # where memlens is, should this interpreter not have it
    try:
        from memlens.measure.lines import LineProfiler
    except ImportError as error:
        sys.exit(f"memlens: --lines needs memlens in the program's Python: {error}")
    finally:
        sys.path.remove(options["lines"])
    named = _uses_profile(code.co_filename)
    profiler = LineProfiler(
        files=() if named else (code.co_filename,),
        backend=options.get("backend"),
        python_level="python_level" in options,
    )
    global add_function
    add_function = profiler.add_function

    def tell() -> None:
        try:
            tables = [table.to_dict() for table in profiler.tables()]
        except RuntimeError:
            return  # the program changed a table under us: the next time, or the last, will do
        _channel.say("lines", tables=tables)

    profiler.enable()
    stop = _repeat(tell, TABLES_SECONDS)

    def finish() -> None:
        profiler.disable()
        stop()

    return finish


def _start_oom(options: dict[str, str], code: CodeType) -> Callable[[], None]:
    """Explain out-of-memory errors, from the moment when the program has loaded torch."""

    def listen() -> None:
        sys.path.append(options["oom"])  # where memlens is, should this interpreter not have it
        try:
            from memlens import on_oom

            on_oom()
        except Exception as error:  # an old Python, a torch that is none: the program goes on without
            sys.stderr.write(f"memlens: out-of-memory errors will not be explained: {error}\n")
        finally:
            sys.path.remove(options["oom"])

    class AfterTorch:
        """Finds torch as it would be found without us, and listens when it has been loaded."""

        @staticmethod
        def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
            if name != "torch":
                return None
            from importlib.util import find_spec

            sys.meta_path.remove(AfterTorch)
            spec = find_spec("torch")
            if spec is not None and spec.loader is not None:
                load = spec.loader.exec_module

                def load_and_listen(module: Any) -> None:
                    load(module)
                    listen()

                spec.loader.exec_module = load_and_listen  # type: ignore[method-assign]
            return spec

    sys.meta_path.insert(0, AfterTorch)

    def finish() -> None:
        if AfterTorch in sys.meta_path:
            sys.meta_path.remove(AfterTorch)

    return finish


def _uses_profile(file: str) -> bool:
    """Whether a file decorates something with a `profile` that it does not import or define itself."""
    import ast

    with open(file, "rb") as source:
        tree = ast.parse(source.read())
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    own = {alias.asname or alias.name for node in imports for alias in node.names}
    decorators = [d for node in ast.walk(tree) for d in getattr(node, "decorator_list", [])]
    names = {getattr(getattr(d, "func", d), "id", None) for d in decorators}
    return "profile" in names and "profile" not in own


# option -> what starts it and gives its end
_STARTS: dict[str, Callable[[dict[str, str], CodeType], Callable[[], None]]] = {
    "python_level": _start_python_level,
    "live": _start_top_lines,
    "lines": _start_lines,
    "oom": _start_oom,
}
