"""Small changes to libraries so that scripts run unchanged on a GPU that is not there.

Each shim is a function registered for one module of one library; it gets the module and returns what to put
in place of what. It is applied when the module is there: at once, or when the script imports it.

>>> @shim("some_library")
... def without_network(shims, module):
...     return {"fetch": lambda url: None}
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable
from importlib.abc import Loader, MetaPathFinder
from types import FrameType, ModuleType
from typing import Any

from memlens.model import Assumption
from memlens.model.user_code import is_user_file
from memlens.patching import Patches, remove
from memlens.scenarios.shims.stand_ins import StandIns
from memlens.units import short_path

Shim = Callable[["Shims", ModuleType], dict[str, Any]]
_TABLE: dict[str, list[Shim]] = {}


def shim(name: str) -> Callable[[Shim], Shim]:
    """Register a shim for the module `name`. Dotted keys of what it returns reach into classes."""

    def register(function: Shim) -> Shim:
        _TABLE.setdefault(name, []).append(function)
        return function

    return register


class Shims(Patches[None]):
    """Those of one run: whether missing data is made up, the simulation they speak to, what they replaced."""

    def __init__(self, *, synthetic: bool = False) -> None:
        super().__init__()
        self.synthetic = synthetic
        self.sim: Any = None
        self.made_up: list[str] = []
        self._done: set[str] = set()
        from memlens.scenarios import shims

        for module in pkgutil.iter_modules(shims.__path__):
            importlib.import_module(f"{shims.__name__}.{module.name}")

    def say(self, what: str, why: str, low_bytes: int = 0, high_bytes: int = 0) -> None:
        """State in the result what a shim assumed."""
        self.sim.assume(Assumption(what, why, low_bytes, high_bytes))

    def make_up(self, what: str, why: str = "it is not on this machine") -> None:
        """State that data which is missing was made up; and note the line that wants it."""
        wanted = f"{what} ({_asking()})"
        if wanted not in self.made_up:
            self.made_up.append(wanted)
        self.say(what, why)

    def apply(self, name: str) -> None:
        """Put the shims of a loaded module in place, once."""
        if name in self._done or name not in _TABLE:
            return
        module = sys.modules[name]
        if not is_library(name):
            return
        self._done.add(name)
        for function in _TABLE[name]:
            for dotted, value in function(self, module).items():
                owner: Any = module
                *path, last = dotted.split(".")
                for part in path:
                    owner = getattr(owner, part)
                self.replace((owner, last), value)

    def begin(self) -> None:
        finder = _Late(self)
        self.afterwards(lambda: remove(sys.meta_path, finder))
        sys.meta_path.insert(0, finder)
        last = StandIns(self.say)
        self.afterwards(lambda: remove(sys.meta_path, last))
        sys.meta_path.append(last)
        for name in list(_TABLE):
            if name in sys.modules:
                self.apply(name)


def is_library(name: str) -> bool:
    """Whether a loaded module is that library's, rather than one of the script's own that has its name.

    A library may also be used from the folder in which it is developed; it has a version there too.
    """
    file = getattr(sys.modules[name], "__file__", None)
    top = sys.modules.get(name.partition(".")[0])
    return file is None or not is_user_file(file) or hasattr(top, "__version__")


def _asking() -> str:
    """The user's line that runs: `train.py:12`."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        frame = frame.f_back
    return short_path(f"{frame.f_code.co_filename}:{frame.f_lineno}") if frame else "an unknown line"


class _Late(MetaPathFinder):
    """Applies the shims of a module that is imported while the script runs."""

    def __init__(self, shims: Shims) -> None:
        self.shims = shims

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname not in _TABLE:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None and spec.loader is not None:
                self._wrap(spec.loader, fullname)
                return spec
        return None

    def _wrap(self, loader: Loader, name: str) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            self.shims.apply(name)

        loader.exec_module = exec_module  # type: ignore[method-assign]
