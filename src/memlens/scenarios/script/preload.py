"""Libraries that a script imports, loaded before the simulation begins.

Some look for a real GPU while they are imported, and all load faster without the simulation in between. The
script's own modules are left alone: they run where the script would run them.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Iterator
from importlib.machinery import PathFinder
from pathlib import Path

from memlens.scenarios.script.source import read_source

# libraries that others load on their own when this is used, and that look for a real GPU then
_BEHIND = {"BitsAndBytesConfig": "bitsandbytes"}

# what this process is made of
_STAY = {"__main__", "memlens", "torch"}


def import_libraries(script: Path, folder: Path) -> dict[str, BaseException]:
    """Import what the script and its own modules, which are in `folder`, import from elsewhere.

    What cannot be imported is left to the script; the first error of each is returned, for a library that is
    half loaded fails otherwise the next time.
    """
    failed: dict[str, BaseException] = {}
    imports = set(libraries(script, folder, set()))
    imports |= {(_BEHIND[attribute], "") for _, attribute in imports if attribute in _BEHIND}
    for name, attribute in sorted(imports):
        try:
            module = importlib.import_module(name)
            getattr(module, attribute, None)  # some libraries load their parts when they are asked for
        except Exception as error:
            failed.setdefault(name.partition(".")[0], error)
    give_way(folder)
    return failed


def give_way(folder: Path) -> None:
    """Forget every loaded module whose name one of the script's own has: that one comes first for it."""
    tops = {name.partition(".")[0] for name in sys.modules} - _STAY
    for top in tops:
        own = PathFinder.find_spec(top, [str(folder)])
        if own is not None and own.origin is not None and not _is_pythons(top):
            for name in [n for n in sys.modules if n == top or n.startswith(f"{top}.")]:
                del sys.modules[name]


def _is_pythons(name: str) -> bool:
    """Whether Python has this module before it looks into any folder."""
    spec = getattr(sys.modules[name], "__spec__", None)
    return getattr(spec, "origin", None) in ("built-in", "frozen")


def libraries(path: Path, folder: Path, seen: set[Path]) -> Iterator[tuple[str, str]]:
    """What `path` and, through its imports, the files in `folder` import from elsewhere: (module, name)."""
    if path in seen:
        return
    seen.add(path)
    for name, attribute in imported_names(path, folder):
        top = name.partition(".")[0]
        spec = PathFinder.find_spec(top, [str(folder)])
        if spec is None or (spec.origin is None and PathFinder.find_spec(top) is not None):
            yield name, attribute  # a mere folder gives way to a package anywhere
            continue
        places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
        for place in places:
            for part in (name, f"{name}.{attribute}"):  # what is imported of a package may be a module
                for file in own_files(Path(place), part):
                    yield from libraries(file, folder, seen)


def own_files(place: Path, name: str) -> list[Path]:
    """The files of one of the script's own modules or packages."""
    if place.name == "__init__.py":
        place = place.parent
    if not place.is_dir():
        return [place] if place.suffix == ".py" else []
    inner = place.joinpath(*name.split(".")[1:])
    return [
        f for f in (place / "__init__.py", inner / "__init__.py", inner.with_suffix(".py")) if f.is_file()
    ]


def imported_names(path: Path, folder: Path) -> set[tuple[str, str]]:
    """Every module that a file imports, also in functions, by its absolute name; and what it takes of it."""
    try:
        tree = ast.parse(read_source(path))
    except (SyntaxError, ValueError, OSError):
        return set()
    package = path.parent.relative_to(folder).parts if path.is_relative_to(folder) else ()
    names: set[tuple[str, str]] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level <= len(package):
            start = package[: len(package) - node.level + 1] if node.level else ()
            name = ".".join([*start, *filter(None, [node.module])])
            names.update((name, alias.name) for alias in node.names)
    return names
