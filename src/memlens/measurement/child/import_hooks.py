"""What the options of `memlens run` put in place inside a Python program, before it begins.

Loaded by bootstrap.py into the program's interpreter, which need not have memlens: standard library only at
import. What needs memlens finds it through the option `source`.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False  # `typing` takes 8 ms to import, and every program waits
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import Any

neighbour: Any = sys.modules["_memlens_bootstrap"].neighbour  # every other file is loaded when it is needed
TOP_LINES = 10
SAY_SECONDS = 0.5  # how often the live view's top lines are told
TABLES_SECONDS = 2.0  # how often line tables are told: what a killed program loses at most


def begin(options: dict[str, str], file: str) -> Callable[[], None]:
    """Put in place what `options` asks for; the function to call when the program (`file`) has ended."""
    after_import("multiprocessing.spawn", lambda module: workers().welcome(module, options, file))
    finishers = [start(options, file) for option, start in _STARTS.items() if option in options]
    owner = os.getpid()

    def finish() -> None:
        if _Finder in sys.meta_path:
            sys.meta_path.remove(_Finder)
        if os.getpid() == owner:  # a fork of the program that came to its end is not the program's end
            for stop in reversed(finishers):
                stop()
        elif "lines" in options:
            workers().tell()

    return finish


def workers() -> Any:
    """What is needed where the program has processes of its own."""
    return neighbour("workers")


_hooks: dict[str, Callable[[Any], None]] = {}


class _Finder:
    """Finds a module as it would be found without us, and calls its hook when it has been loaded."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
        if name not in _hooks:
            return None
        from importlib.util import find_spec

        hook = _hooks.pop(name)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_call(module: Any) -> None:
                load(module)
                hook(module)

            spec.loader.exec_module = load_and_call  # type: ignore[method-assign]
        return spec


def after_import(name: str, hook: Callable[[Any], None]) -> None:
    """Call `hook` with the module `name` once it has been imported; now, if it is there already."""
    if name in sys.modules:
        hook(sys.modules[name])
        return
    _hooks[name] = hook
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)


class PathOf:
    """`with` this, memlens can be imported, should this interpreter not have it."""

    def __init__(self, options: dict[str, str]) -> None:
        self.source = options["source"]

    def __enter__(self) -> None:
        sys.path.append(self.source)

    def __exit__(self, *exception: object) -> None:
        sys.path.remove(self.source)


def repeat(action: Callable[[], None], seconds: float) -> Callable[[], None]:
    """Call `action` every so often in a thread, and once more at the end."""
    import json  # noqa: F401  (what `say` needs: a fork while the thread imports it would leave it half there)
    import threading

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


def _start_python_level(options: dict[str, str], file: str) -> Callable[[], None]:
    """Tell how much Python's own allocators hold, as tracemalloc counts it, and the peak at the end."""
    import tracemalloc

    tracemalloc.start(1)

    def tell() -> None:
        if tracemalloc.is_tracing():
            held, peak = tracemalloc.get_traced_memory()
            neighbour("channel").say("python", bytes=held, peak_bytes=peak)

    return repeat(tell, float(options["interval"]))


class TopLines:
    """Which lines the main thread was at while memory grew: sampled, cheap, and so never exact."""

    def __init__(self) -> None:
        import threading

        self._rss = neighbour("spans").rss_reader()
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
        neighbour("channel").say("top", lines=top)


def _user_line(frame: FrameType | None) -> str:
    """`file.py:12` of the innermost frame outside Python's own library and installed packages."""
    first = frame
    while frame is not None:
        file = frame.f_code.co_filename
        if "site-packages" not in file and not file.startswith((sys.prefix, sys.base_prefix, "<frozen")):
            return f"{os.path.basename(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return f"{os.path.basename(first.f_code.co_filename)}:{first.f_lineno}" if first else ""


def _start_top_lines(options: dict[str, str], file: str) -> Callable[[], None]:
    top = TopLines()
    stop = repeat(top.look, min(float(options["interval"]), 0.02))

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


def _start_lines(options: dict[str, str], file: str) -> Callable[[], None]:
    """Measure line by line: what `@profile` names, or the program's whole file if it names nothing."""
    finish: Callable[[], None] = workers().measure_lines(options, () if uses_profile(file) else (file,))
    return finish


def _start_stop(options: dict[str, str], file: str) -> Callable[[], None]:
    """A debugger where a decorated function, or anything in the file, has too much in use."""
    with PathOf(options):
        from memlens.measurement.lines.break_above import StopAbove
    files = () if uses_profile(file) else (file,)
    stop = StopAbove(int(options["stop_above"]), options["backend"], files)
    neighbour("spans").add_function = stop.add_function
    stop.enable()
    return stop.disable


def _start_oom(options: dict[str, str], file: str) -> Callable[[], None]:
    """Explain out-of-memory errors, from the moment when the program has loaded torch."""

    def listen(torch: Any) -> None:
        try:
            with PathOf(options):
                from memlens import on_oom

                on_oom()
        except Exception as error:  # an old Python, a torch that is none: the program goes on without
            sys.stderr.write(f"memlens: out-of-memory errors will not be explained: {error}\n")

    after_import("torch", listen)
    return lambda: None


def uses_profile(file: str) -> bool:
    """Whether a file decorates something with a `profile` that it does not import or define itself."""
    import ast

    with open(file, "rb") as source:
        text = source.read()
    if file.endswith(".ipynb"):
        return b"@profile" in text
    tree = ast.parse(text)
    imports = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    own = {alias.asname or alias.name for node in imports for alias in node.names}
    decorators = [d for node in ast.walk(tree) for d in getattr(node, "decorator_list", [])]
    names = {getattr(getattr(d, "func", d), "id", None) for d in decorators}
    return "profile" in names and "profile" not in own


# option -> what starts it and gives its end
_STARTS: dict[str, Callable[[dict[str, str], str], Callable[[], None]]] = {
    "python_level": _start_python_level,
    "live": _start_top_lines,
    "lines": _start_lines,
    "stop_above": _start_stop,
    "oom": _start_oom,
}
