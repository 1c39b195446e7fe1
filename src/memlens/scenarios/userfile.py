"""The user's own code: `net.py:make_model`, `package.module:Net`, and what is in a file."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from memlens.errors import MemlensError, TargetError, UsageError
from memlens.scenarios.constructor_names import nearest
from memlens.scenarios.user_frames import last_line, place


def check(place_: str) -> None:
    """Raise now, before anything is simulated, when `place_` is a file that is not there."""
    if place_.endswith(".py") or os.sep in place_:
        path = Path(place_)
        if not path.exists():
            raise TargetError(f"there is no file {place_}", hint=_similar_files(path))
        if path.is_dir():
            raise TargetError(f"{place_} is a directory, not a Python file")
        import_what_it_imports(path)
    else:
        _import(place_)


def load(place_: str, name: str) -> Any:
    """The object `name` (dots reach inside classes) of a file or an importable module.

    A file is run anew, under its own name but without an entry in `sys.modules`.
    """
    is_file = place_.endswith(".py") or os.sep in place_
    module = _run_file(Path(place_)) if is_file else _import(place_)
    thing: Any = module
    for part in name.split("."):
        if not hasattr(thing, part):
            raise _no_such_object(place_, name, module)
        thing = getattr(thing, part)
    return thing


def _run_file(path: Path) -> ModuleType:
    # pickling and dataclasses look their module up by name, so the module is in sys.modules while it runs
    name = path.stem if path.stem not in sys.modules else f"memlens_target_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise TargetError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with folder_on_path(path.parent):
            spec.loader.exec_module(module)
    except (Exception, SystemExit) as problem:
        raise TargetError(f"{path} does not import: {last_line(problem)} ({place(problem)})") from problem
    finally:
        sys.modules.pop(name, None)
    return module


def _import(name: str) -> ModuleType:
    try:
        with folder_on_path(Path.cwd()):
            return importlib.import_module(name)
    except ModuleNotFoundError as problem:
        if problem.name and (name == problem.name or name.startswith(problem.name + ".")):
            hint = "a file is named with its ending: net.py:make_model"
            raise TargetError(f"there is no module {problem.name!r}", hint=hint) from problem
        raise TargetError(f"{name} does not import: {last_line(problem)}") from problem
    except MemlensError:
        raise
    except (Exception, SystemExit) as problem:
        raise TargetError(f"{name} does not import: {last_line(problem)} ({place(problem)})") from problem


@contextmanager
def folder_on_path(folder: Path) -> Iterator[None]:
    """`folder` first on `sys.path`, as for a script that is run, and the path as it was afterwards."""
    before = list(sys.path)
    sys.path.insert(0, str(folder.resolve()))
    try:
        yield
    finally:
        sys.path[:] = before


def import_what_it_imports(path: Path) -> None:
    """Import the libraries that a file imports, so that they are not loaded inside the simulation.

    What cannot be imported is left to the file itself, whose error is the one to show.
    """
    tree = _parse(path)
    names: set[str] = set()
    for node in tree.body if tree else ():
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names.add(node.module)
    with folder_on_path(path.parent):
        for name in sorted(names):
            with suppress(Exception):
                importlib.import_module(name)


def _parse(path: Path) -> ast.Module | None:
    try:
        return ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, OSError):
        return None


def objects_in(path: Path) -> list[str]:
    """The classes and functions that a file defines at its top, modules (`nn.Module`) first.

    Read from the text: the file is not run.
    """
    tree = _parse(path)
    modules: list[str] = []
    others: list[str] = []
    for node in tree.body if tree else ():
        if isinstance(node, ast.ClassDef):
            is_module = any(ast.unparse(base).split(".")[-1].endswith("Module") for base in node.bases)
            (modules if is_module else others).append(node.name)
        elif isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            others.append(node.name)
    return modules + others


def names_in(text: str) -> str:
    """`net.py:Net, net.py:make`: what may be named of a file; empty if it defines nothing."""
    return ", ".join(f"{text}:{name}" for name in objects_in(Path(text))[:8])


def _no_such_object(place_: str, name: str, module: ModuleType) -> TargetError:
    known = objects_in(Path(module.__file__)) if module.__file__ else []
    close = nearest(name, known, 1)
    listed = f"it has {', '.join(known[:12])}" if known else "it defines no class and no function"
    hint = f"did you mean {place_}:{close[0]}? ({listed})" if close else listed
    return TargetError(f"{place_} has no object {name!r}", hint=hint)


def not_a_target(text: str, examples: str) -> MemlensError:
    """The error for a text without an object: a script, a file that is not there, a bare model name."""
    path = Path(text)
    if text.endswith(".py"):
        if not path.exists():
            return TargetError(f"there is no file {text}", hint=_similar_files(path))
        known = objects_in(path)
        runs = f"`memlens predict {text}` and memlens.predict_script({text!r}) run it as it is"
        hint = f"name one of them: {names_in(text)}; {runs}" if known else runs
        return UsageError(f"{text} is a script; a model is needed here, or what makes one", hint=hint)
    return UsageError(f"cannot read the target {text!r}", hint=f"write it as {examples}")


def _similar_files(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"there is no folder {folder} either"
    names = [p.name for p in folder.glob("*.py")]
    close = nearest(path.name, names, 1)
    if close:
        return f"did you mean {folder / close[0]}?"
    return f"Python files in {folder.resolve()}: {', '.join(sorted(names)[:8]) or 'none'}"
