"""Runs a script or module as Python itself would, with `profile` in builtins: the inside of `memlens run`.

Loaded by entry.py in the program's own interpreter, which need not have memlens:
`python entry.py OPTIONS TARGET args`, OPTIONS a line each (`key=value`), TARGET a script or `-m module`.
Standard library only, and little of it: what is imported here is paid by every program.
"""

from __future__ import annotations

import builtins
import os
import sys

TYPE_CHECKING = False  # `typing` takes 8 ms to import, and every program waits
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, ModuleType, TracebackType
    from typing import Any

HERE = os.path.dirname(os.path.abspath(__file__))


def main(entry: str) -> None:
    """Become the program: its argv, its path, its `__main__`; then run it."""
    options = dict(line.split("=", 1) for line in sys.argv[1].splitlines())
    target = sys.argv[2:]
    if not sys.flags.safe_path:
        del sys.path[0]  # this file's directory; the program's own takes its place
    try:
        module, run, file = _program(target)
    except (SyntaxError, ValueError):
        _hide(entry, __file__)
        raise
    finish = work(options, file)
    tracker = neighbour("import_hooks").tracker(options) if "exact" in options else None
    sys.modules["__main__"] = module
    if tracker is not None:
        tracker.__enter__()  # in this frame: memray loses the stack when the frame that began it returns
    try:
        run()
    except BaseException:
        _hide(entry, __file__)
        raise
    finally:
        if tracker is not None:
            tracker.__exit__(None, None, None)
        for end in (finish, _tell_peak):
            try:
                end()
            except Exception:  # whatever fails of ours, the program's exit code is its own
                continue


def _program(target: list[str]) -> tuple[ModuleType, Callable[[], object], str]:
    """Its `__main__`, what runs in it, and its file."""
    if target[0].endswith(".ipynb"):
        return read_notebook(target)
    module, code = read_module(target) if target[0] == "-m" else read_script(target)
    return module, lambda: exec(code, module.__dict__), code.co_filename


def work(options: dict[str, str], file: str) -> Callable[[], None]:
    """`profile` in builtins, and what `options` asks for, in the program or a worker of it; its end."""
    builtins.profile = Profile()  # type: ignore[attr-defined]
    finish: Callable[[], None] = neighbour("import_hooks").begin(options, file)
    return finish


def read_script(target: list[str]) -> tuple[ModuleType, CodeType]:
    """A script: `__main__` as `python script.py` makes it."""
    from importlib.machinery import SourceFileLoader

    sys.argv[:] = target
    path = os.path.abspath(target[0])  # as Python does it: argv keeps what was typed, __file__ is absolute
    if not sys.flags.safe_path:
        sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    module = new_main()
    loader = SourceFileLoader("__main__", path)
    module.__dict__.update(__file__=path, __builtins__=builtins, __loader__=loader, __cached__=None)
    with open(path, "rb") as file:
        source = file.read()
    return module, compile(source, path, "exec", dont_inherit=True)


def read_module(target: list[str]) -> tuple[ModuleType, CodeType]:
    """A module: `__main__` as `python -m module` makes it, package and spec included."""
    import runpy

    name = target[1]
    sys.argv[:] = ["-m", *target[2:]]
    if not sys.flags.safe_path:
        sys.path.insert(0, os.getcwd())
    try:
        # private, and what pdb and cProfile use for the same purpose
        _, spec, code = runpy._get_module_details(name, runpy._Error)  # type: ignore[attr-defined]
    except runpy._Error as error:  # type: ignore[attr-defined]
        sys.exit(f"{sys.executable}: {error}")
    sys.argv[0] = spec.origin
    module = new_main()
    module.__dict__.update(
        __file__=spec.origin,
        __builtins__=builtins,
        __loader__=spec.loader,
        __cached__=spec.cached,
        __package__=spec.parent,
        __spec__=spec,
    )
    return module, code


def read_notebook(target: list[str]) -> tuple[ModuleType, Callable[[], object], str]:
    """A notebook: its cells one after the other, as Jupyter runs them. The interpreter is memlens's own."""
    source = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
    sys.path.append(source)
    try:
        from memlens.measurement.notebooks.program import read_notebook as read
    finally:
        sys.path.remove(source)
    path = os.path.abspath(target[0])
    sys.argv[:] = [path, *target[1:]]
    if not sys.flags.safe_path:
        sys.path.insert(0, os.path.dirname(path))
    module = new_main()
    return module, read(path, module), path


def new_main() -> ModuleType:
    """An empty `__main__`, with what this Python puts in every one."""
    module = type(sys)("__main__")
    if "__annotations__" in vars(sys.modules["__main__"]):
        module.__annotations__ = {}
    return module


def _hide(*files: str) -> None:
    """Show the program's exceptions as Python would without us: without our frames."""
    shown = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> Any:
        while trace is not None and trace.tb_frame.f_code.co_filename in files:
            trace = trace.tb_next
        error.__traceback__ = trace
        return shown(kind, error, trace)

    sys.excepthook = hook


def _tell_peak() -> None:
    """The highest RSS of this process's life: what the last sample from outside came too early to see."""
    try:
        with open("/proc/self/status", "rb") as status:
            mark = int(status.read().split(b"VmHWM:")[1].split()[0]) * 1024
        # line profiles set the system's mark back: what it said before
        meters = sys.modules.get("memlens.measurement.host.meters")
        mark = max(mark, getattr(meters, "highest_bytes", int)())
        descriptor = os.open(os.environ["MEMLENS_CHANNEL"], os.O_WRONLY | os.O_APPEND)
        try:
            os.write(descriptor, b'{"kind":"peak","pid":%d,"time_us":0,"bytes":%d}\n' % (os.getpid(), mark))
        finally:
            os.close(descriptor)
    except (OSError, KeyError, IndexError):
        return  # no /proc, nobody listens, or the disk is full


class Profile:
    """`profile` in builtins: function times for the timeline. What it does is loaded when it is used."""

    def __call__(self, function: Any = None, **options: Any) -> Any:
        """A decorator, bare or called; the options of the line-by-line form have no use here."""
        return neighbour("spans").timed(function) if function is not None else self

    def timestamp(self, name: str = "<block>") -> Any:
        """`with profile.timestamp("load"):` puts a block on the timeline."""
        return neighbour("spans").span(name)


_NEEDS = {"spans": ("channel",), "workers": ("spans", "import_hooks")}


def neighbour(name: str) -> Any:
    """A file beside this one, by its path: memlens need not be installed in this interpreter."""
    module = "_memlens_" + name
    if module not in sys.modules:
        from importlib.machinery import SourceFileLoader

        for needed in _NEEDS.get(name, ()):
            neighbour(needed)
        made = sys.modules[module] = type(sys)(module)
        made.__file__ = os.path.join(HERE, name + ".py")
        SourceFileLoader(module, made.__file__).exec_module(made)
    return sys.modules[module]
