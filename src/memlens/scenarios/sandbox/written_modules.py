"""Modules that a script has written: Python's import looks at the real disk, where they are not."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from typing import Any


class WrittenModules(MetaPathFinder):
    """The last finder: looks where Python does, through `os` and `open` as the sandbox has them."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        for folder in sys.path if path is None else path:
            file = os.path.abspath(os.path.join(folder, name.rpartition(".")[2] + ".py"))
            if os.path.isfile(file):
                return spec_from_file_location(name, file, loader=_Loader(name, file))
        return None


class _Loader(SourceFileLoader):
    def get_data(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def path_stats(self, path: str) -> Any:
        raise OSError  # no bytecode is kept
