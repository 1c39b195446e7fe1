"""What only Colab, Kaggle or a browser has: imported by the user's own code, a stand-in that does nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any

from memlens.model.user_code import is_user_file

MODULES = ("google.colab", "kaggle_secrets", "ipywidgets")
# what a call returns, where nothing will not do
RETURNS: dict[str, Any] = {
    "google.colab.userdata.get": "",
    "kaggle_secrets.UserSecretsClient.get_secret": "",
    "google.colab.files.upload": {},
}


class Nothing:
    """Has every attribute, can be called, and is empty."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing(f"{self._name}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._name in RETURNS:
            return RETURNS[self._name]
        # a decorator leaves the function; a class leads to the methods of its instances
        return args[0] if args and callable(args[0]) else Nothing(self._name)

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exception: object) -> None:
        pass


class StandIns(MetaPathFinder, Loader):
    """The last finder: asked for what nobody else has."""

    def __init__(self, say: Callable[[str, str], None]) -> None:
        self.say = say
        self._said: set[str] = set()

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        known = next((m for m in MODULES if f"{name}.".startswith(f"{m}.") or m.startswith(f"{name}.")), None)
        if known is None or not is_user_file(_importer(sys._getframe(1))):
            return None
        if known not in self._said:
            self._said.add(known)
            self.say(f"{known} is a stand-in that does nothing", "it is not installed here")
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__

        def get(attribute: str) -> Any:
            if attribute.startswith("__"):
                raise AttributeError(attribute)
            return Nothing(f"{name}.{attribute}")

        if name in MODULES:  # `google` alone has what is installed of it
            module.__getattr__ = get  # type: ignore[method-assign]


def _importer(frame: FrameType | None) -> str:
    """The file that has the import statement."""
    while frame is not None and "importlib" in frame.f_code.co_filename:
        frame = frame.f_back
    return frame.f_code.co_filename if frame is not None else ""
